#include "browser.h"

#include <stdlib.h>
#include <string.h>

#include "../common/json.h"
#include "../common/methods.h"
#include "cookies.h"
#include "device.h"
#include "dialogs.h"
#include "downloads.h"
#include "drag.h"
#include "files.h"
#include "gate.h"
#include "input.h"
#include "navigation.h"
#include "network.h"
#include "print.h"
#include "sandbox.h"
#include "screenshot.h"

#define SIDE_PIXELS_MAX 10000

browser the_browser;

typedef void (*page_handler)(page *of, request *asked);
enum place { ROOT, PAGE };

typedef struct method {
  const char *name;
  enum place place;
  page_handler handler;
} method;

#define LISTED(method, where, handler) {method, where, handler},
static const method methods[] = {ENGINE_METHODS(LISTED)};

static const method *find_method(const char *name) {
  for (gsize index = 0; index < G_N_ELEMENTS(methods); index++)
    if (strcmp(methods[index].name, name) == 0)
      return &methods[index];
  return NULL;
}

/* The first time, for the browser as a whole, there is a page to attach to; pages have nothing below them. */
static void set_auto_attach(request *asked) {
  static gboolean has_first_page = FALSE;
  if (!asked->session && !has_first_page) {
    page *first = page_open(NULL);
    has_first_page = TRUE;
    if (first && the_browser.first_uri)
      webkit_web_view_load_uri(first->view, the_browser.first_uri);
  }
  answer_empty(asked);
}

void browser_dispatch(request *asked) {
  if (strcmp(asked->method, "Target.setAutoAttach") == 0) {
    set_auto_attach(asked);
    return;
  }
  const method *found = find_method(asked->method);
  if (!found) {
    answer_unsupported(asked, "webkit does not know %s", asked->method);
    return;
  }
  page *of = asked->session ? page_of_session(asked->session) : NULL;
  if (asked->session && !of)
    answer_error(asked, "Session with given id not found.");
  else if (found->place == PAGE && !of)
    answer_unsupported(asked, "webkit knows %s for a page's session only", asked->method);
  else
    found->handler(of, asked);
}

void browser_close(page *of, request *asked) {
  (void)of;
  answer_empty(asked);
  engine_end();
}

void browser_get_version(page *of, request *asked) {
  (void)of;
  g_autoptr(WebKitSettings) settings = browser_page_settings();
  g_autofree char *product =
      g_strdup_printf("WebKitGTK/%u.%u.%u%s", webkit_get_major_version(), webkit_get_minor_version(),
                      webkit_get_micro_version(), the_browser.has_sandbox ? "" : " (without its sandbox)");
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_string(result, "protocolVersion", "1.3");
  json_add_string(result, "product", product);
  json_add_string(result, "revision", "");
  json_add_string(result, "userAgent", webkit_settings_get_user_agent(settings));
  json_add_string(result, "jsVersion", "");
  json_end_object(result);
  answer(asked, result->str);
}

void browser_create_target(page *of, request *asked) {
  (void)of;
  const char *uri = json_string(asked->params, "url", "about:blank");
  page *made = page_open(NULL);
  if (!made) {
    answer_error(asked, "too many pages are open");
    return;
  }
  if (*uri != '\0' && strcmp(uri, "about:blank") != 0)
    webkit_web_view_load_uri(made->view, uri);
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_string(result, "targetId", made->target);
  json_end_object(result);
  answer(asked, result->str);
}

void browser_close_target(page *of, request *asked) {
  (void)of;
  page *closed = page_of_target(json_string(asked->params, "targetId", ""));
  if (!closed) {
    answer_error(asked, "No target with given id found");
    return;
  }
  page_close(closed);
  answer(asked, "{\"success\":true}");
}

/* For tests of what comes after; nothing here survives it. */
void browser_crash(page *of, request *asked) {
  (void)of, (void)asked;
  abort();
}

static char *extensions_folder(void) {
  g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
  g_autofree char *folder = self ? g_path_get_dirname(self) : NULL;
  return g_build_filename(folder ? folder : ".", "page", NULL);
}

gboolean browser_is_complete(void) {
  g_autofree char *folder = extensions_folder();
  g_autofree char *file = g_build_filename(folder, PAGE_EXTENSION_FILE, NULL);
  return g_file_test(file, G_FILE_TEST_IS_REGULAR);
}

/* Every process that shows pages loads the extension, and is told where the gate is. */
static void on_process_starts(WebKitWebContext *context, gpointer data) {
  (void)data;
  g_autofree char *extensions = extensions_folder();
  webkit_web_context_set_web_extensions_directory(context, extensions);
  webkit_web_context_set_web_extensions_initialization_user_data(context, g_variant_new_string(gate_path()));
}

static char **bypassed_hosts(JsonArray *given) {
  g_autoptr(GStrvBuilder) hosts = g_strv_builder_new();
  for (guint index = 0; given && index < json_array_get_length(given); index++) {
    JsonNode *each = json_array_get_element(given, index);
    if (JSON_NODE_HOLDS_VALUE(each) && json_node_get_value_type(each) == G_TYPE_STRING)
      g_strv_builder_add(hosts, json_node_get_string(each));
  }
  return g_strv_builder_end(hosts);
}

/* A SOCKS proxy takes its login from the address; one that speaks HTTP is given it when it asks. */
static void use_proxy(WebKitWebsiteDataManager *manager, JsonObject *options) {
  const char *address = json_string(options, "proxy", NULL);
  g_autoptr(GUri) uri = address ? g_uri_parse(address, G_URI_FLAGS_HAS_PASSWORD, NULL) : NULL;
  if (!uri)
    return;
  const gboolean is_socks = g_str_has_prefix(g_uri_get_scheme(uri), "socks");
  g_autofree char *without_login = g_uri_to_string_partial(uri, G_URI_HIDE_USERINFO);
  the_browser.proxy_user = g_strdup(g_uri_get_user(uri));
  the_browser.proxy_password = g_strdup(g_uri_get_password(uri) ? g_uri_get_password(uri) : "");
  g_auto(GStrv) bypass = bypassed_hosts(json_array(options, "proxyBypass"));
  the_browser.proxies = g_simple_proxy_resolver_new(without_login, bypass);
  WebKitNetworkProxySettings *settings =
      webkit_network_proxy_settings_new(is_socks ? address : without_login, (const char *const *)bypass);
  webkit_website_data_manager_set_network_proxy_settings(manager, WEBKIT_NETWORK_PROXY_MODE_CUSTOM, settings);
  webkit_network_proxy_settings_free(settings);
}

gboolean browser_goes_through_proxy(const char *uri) {
  if (!the_browser.proxies || !uri)
    return FALSE;
  g_auto(GStrv) ways = g_proxy_resolver_lookup(the_browser.proxies, uri, NULL, NULL);
  return ways && g_strcmp0(ways[0], "direct://") != 0;
}

static WebKitWebContext *make_context(const engine_settings *settings) {
  g_autofree char *data = g_build_filename(settings->profile, "data", NULL);
  g_autofree char *cache = g_build_filename(settings->profile, "cache", NULL);
  /* Not an ephemeral one: WebKit keeps silent about the console of those. The profile is deleted anyway. */
  g_autoptr(WebKitWebsiteDataManager) manager =
      webkit_website_data_manager_new("base-data-directory", data, "base-cache-directory", cache, NULL);
  use_proxy(manager, settings->options);
  if (json_flag(settings->options, "ignoreHttpsErrors", FALSE))
    webkit_website_data_manager_set_tls_errors_policy(manager, WEBKIT_TLS_ERRORS_POLICY_IGNORE);
  WebKitWebContext *context = webkit_web_context_new_with_website_data_manager(manager);
  g_autofree char *extensions = extensions_folder();
  the_browser.has_sandbox = sandbox_enable(context, extensions, settings->profile);
  webkit_web_context_set_cache_model(context, WEBKIT_CACHE_MODEL_DOCUMENT_BROWSER);
  g_signal_connect(context, "initialize-web-extensions", G_CALLBACK(on_process_starts), NULL);
  return context;
}

/* Of these workers WebKit shows no request, so they could go to addresses that are blocked; a proxy can see to it. */
static void turn_off_unseen_workers(WebKitSettings *settings) {
  static const char *const unseen[] = {"ServiceWorkers", "SharedWorker", NULL};
  g_autoptr(WebKitFeatureList) features = webkit_settings_get_all_features();
  for (gsize index = 0; index < webkit_feature_list_get_length(features); index++) {
    WebKitFeature *each = webkit_feature_list_get(features, index);
    if (g_strv_contains(unseen, webkit_feature_get_identifier(each)))
      webkit_settings_set_feature_enabled(settings, each, FALSE);
  }
}

WebKitSettings *browser_page_settings(void) {
  WebKitSettings *settings = webkit_settings_new_with_settings(
      /* A page that comes back from there brings its frames and worlds along without saying so. */
      "enable-page-cache", FALSE,
      /* Windows that a script opens late, after an answer of its server, are as wanted as others. */
      "javascript-can-open-windows-automatically", TRUE, "media-playback-requires-user-gesture", FALSE,
      "enable-back-forward-navigation-gestures", FALSE, "enable-smooth-scrolling", FALSE,
      "enable-developer-extras", FALSE, NULL);
  if (!the_browser.proxies)
    turn_off_unseen_workers(settings);
  return settings;
}

void browser_start(const engine_settings *settings) {
  the_browser.profile = settings->profile;
  the_browser.first_uri = json_string(settings->options, "url", NULL);
  the_browser.is_headless = settings->display != NULL;
  the_browser.width = (int)CLAMP(json_integer(settings->options, "width", 1280), 50, SIDE_PIXELS_MAX);
  the_browser.height = (int)CLAMP(json_integer(settings->options, "height", 720), 50, SIDE_PIXELS_MAX);
  the_browser.context = make_context(settings);
  device_watch(the_browser.context);
  downloads_watch(the_browser.context);
  /* Clicks are counted by the tool: two in the same place are a double click only when it says so. */
  g_object_set(gtk_settings_get_default(), "gtk-double-click-time", 0, NULL);
}

void browser_stop(void) {
  for (page *of; (of = page_any()) != NULL;)
    page_close(of);
  g_clear_object(&the_browser.context);
  g_clear_object(&the_browser.proxies);
  g_clear_pointer(&the_browser.proxy_user, g_free);
  g_clear_pointer(&the_browser.proxy_password, g_free);
}
