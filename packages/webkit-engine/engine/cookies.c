#include "cookies.h"

#include "../common/json.h"
#include "browser.h"

#define COOKIES_SET_MAX 1000u

static WebKitCookieManager *manager(void) {
  return webkit_web_context_get_cookie_manager(the_browser.context);
}

static const char *same_site_name(SoupSameSitePolicy policy) {
  switch (policy) {
    case SOUP_SAME_SITE_POLICY_STRICT:
      return "Strict";
    case SOUP_SAME_SITE_POLICY_LAX:
      return "Lax";
    case SOUP_SAME_SITE_POLICY_NONE:
      break;
  }
  return "None";
}

static void add_cookie(GString *out, SoupCookie *cookie) {
  GDateTime *expires = soup_cookie_get_expires(cookie);
  json_begin_object(out, NULL);
  json_add_string(out, "name", soup_cookie_get_name(cookie));
  json_add_string(out, "value", soup_cookie_get_value(cookie));
  json_add_string(out, "domain", soup_cookie_get_domain(cookie));
  json_add_string(out, "path", soup_cookie_get_path(cookie));
  json_add_double(out, "expires", expires ? (double)g_date_time_to_unix(expires) : -1);
  json_add_bool(out, "httpOnly", soup_cookie_get_http_only(cookie));
  json_add_bool(out, "secure", soup_cookie_get_secure(cookie));
  json_add_bool(out, "session", expires == NULL);
  json_add_string(out, "sameSite", same_site_name(soup_cookie_get_same_site_policy(cookie)));
  json_end_object(out);
}

static void answer_list(request *asked, GList *list, const GError *error) {
  if (error) {
    answer_error(asked, "%s", error->message);
    return;
  }
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_begin_array(result, "cookies");
  for (GList *each = list; each; each = each->next)
    add_cookie(result, each->data);
  json_end_array(result);
  json_end_object(result);
  answer(asked, result->str);
}

static void free_cookies(GList *list) {
  g_list_free_full(list, (GDestroyNotify)soup_cookie_free);
}

static void on_all(GObject *source, GAsyncResult *result, gpointer data) {
  g_autoptr(GError) error = NULL;
  GList *list = webkit_cookie_manager_get_all_cookies_finish(WEBKIT_COOKIE_MANAGER(source), result, &error);
  answer_list(data, list, error);
  free_cookies(list);
}

void cookies_get_all(page *of, request *asked) {
  (void)of;
  webkit_cookie_manager_get_all_cookies(manager(), NULL, on_all, asked);
}

static void on_some(GObject *source, GAsyncResult *result, gpointer data) {
  g_autoptr(GError) error = NULL;
  GList *list = webkit_cookie_manager_get_cookies_finish(WEBKIT_COOKIE_MANAGER(source), result, &error);
  answer_list(data, list, error);
  free_cookies(list);
}

void cookies_get_for_urls(page *of, request *asked) {
  JsonArray *urls = json_array(asked->params, "urls");
  const guint count = urls ? json_array_get_length(urls) : 0;
  JsonNode *first = count > 0 ? json_array_get_element(urls, 0) : NULL;
  const char *url = first && JSON_NODE_HOLDS_VALUE(first) ? json_node_get_string(first) : NULL;
  if (count > 1)
    answer_unsupported(asked, "webkit looks up the cookies of one address at a time");
  else if (count == 1 && !url)
    answer_error(asked, "urls must be addresses");
  else
    webkit_cookie_manager_get_cookies(manager(), url ? url : webkit_web_view_get_uri(of->view), of->closing,
                                      on_some, asked);
}

/* NULL when it has neither a domain nor an address to take one from. */
static SoupCookie *read_cookie(JsonObject *given) {
  const char *name = json_string(given, "name", NULL);
  g_autoptr(GUri) url = g_uri_parse(json_string(given, "url", ""), SOUP_HTTP_URI_FLAGS, NULL);
  const char *domain = json_string(given, "domain", url ? g_uri_get_host(url) : NULL);
  if (!name || !*name || !domain || !*domain)
    return NULL;
  SoupCookie *cookie =
      soup_cookie_new(name, json_string(given, "value", ""), domain, json_string(given, "path", "/"), -1);
  const double expires = json_number(given, "expires", -1);
  if (expires >= 0) {
    g_autoptr(GDateTime) at = g_date_time_new_from_unix_utc((gint64)expires);
    if (at)
      soup_cookie_set_expires(cookie, at);
  }
  const gboolean is_https = url && g_strcmp0(g_uri_get_scheme(url), "https") == 0;
  const char *same_site = json_string(given, "sameSite", "Lax");
  soup_cookie_set_http_only(cookie, json_flag(given, "httpOnly", FALSE));
  soup_cookie_set_secure(cookie, json_flag(given, "secure", is_https));
  soup_cookie_set_same_site_policy(cookie, g_strcmp0(same_site, "Strict") == 0 ? SOUP_SAME_SITE_POLICY_STRICT
                                           : g_strcmp0(same_site, "None") == 0 ? SOUP_SAME_SITE_POLICY_NONE
                                                                               : SOUP_SAME_SITE_POLICY_LAX);
  return cookie;
}

typedef struct setting {
  request *asked;
  guint left;
} setting;

static void on_added(GObject *source, GAsyncResult *result, gpointer data) {
  setting *of = data;
  g_autoptr(GError) error = NULL;
  webkit_cookie_manager_add_cookie_finish(WEBKIT_COOKIE_MANAGER(source), result, &error);
  if (error && of->asked)
    answer_error(g_steal_pointer(&of->asked), "%s", error->message);
  if (--of->left > 0)
    return;
  if (of->asked)
    answer_empty(of->asked);
  g_free(of);
}

void cookies_set(page *of, request *asked) {
  (void)of;
  JsonArray *given = json_array(asked->params, "cookies");
  const guint count = given ? json_array_get_length(given) : 0;
  if (count == 0 || count > COOKIES_SET_MAX) {
    answer_error(asked, "cookies must be a list of 1 to %u", COOKIES_SET_MAX);
    return;
  }
  g_autoptr(GPtrArray) cookies = g_ptr_array_new_with_free_func((GDestroyNotify)soup_cookie_free);
  for (guint index = 0; index < count; index++) {
    JsonNode *each = json_array_get_element(given, index);
    SoupCookie *cookie = JSON_NODE_HOLDS_OBJECT(each) ? read_cookie(json_node_get_object(each)) : NULL;
    if (!cookie) {
      answer_error(asked, "cookies.%u needs a name, and a url or a domain", index);
      return;
    }
    g_ptr_array_add(cookies, cookie);
  }
  setting *wait = g_new0(setting, 1);
  wait->asked = asked;
  wait->left = cookies->len;
  for (guint index = 0; index < cookies->len; index++)
    webkit_cookie_manager_add_cookie(manager(), g_ptr_array_index(cookies, index), NULL, on_added, wait);
}

static void on_cleared(GObject *source, GAsyncResult *result, gpointer data) {
  g_autoptr(GError) error = NULL;
  if (webkit_website_data_manager_clear_finish(WEBKIT_WEBSITE_DATA_MANAGER(source), result, &error))
    answer_empty(data);
  else
    answer_error(data, "%s", error->message);
}

void cookies_clear(page *of, request *asked) {
  (void)of;
  WebKitWebsiteDataManager *data = webkit_web_context_get_website_data_manager(the_browser.context);
  const GTimeSpan since_ever = 0;
  webkit_website_data_manager_clear(data, WEBKIT_WEBSITE_DATA_COOKIES, since_ever, NULL, on_cleared, asked);
}
