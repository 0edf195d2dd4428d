#include "page.h"

#include <string.h>

#include "../common/json.h"
#include "browser.h"
#include "device.h"
#include "dialogs.h"
#include "files.h"
#include "gate.h"
#include "input.h"
#include "navigation.h"
#include "network.h"
#include "policy.h"

#define PAGES_MAX 200u
#define PREPARED_MAX 200u

static GPtrArray *pages;
static guint pages_made;

static gboolean has_same_session(gconstpointer each, gconstpointer session) {
  return strcmp(((const page *)each)->session, session) == 0;
}

static gboolean has_same_target(gconstpointer each, gconstpointer target) {
  return strcmp(((const page *)each)->target, target) == 0;
}

static gboolean has_same_number(gconstpointer each, gconstpointer number) {
  return webkit_web_view_get_page_id(((const page *)each)->view) == *(const guint64 *)number;
}

static gboolean is_under_way(gconstpointer each, gconstpointer unused) {
  (void)unused;
  return ((const page *)each)->navigation.next_loader != 0;
}

static page *find_page(gconstpointer wanted, GEqualFunc is_it) {
  guint index = 0;
  if (!pages || !wanted || !g_ptr_array_find_with_equal_func(pages, wanted, is_it, &index))
    return NULL;
  return g_ptr_array_index(pages, index);
}

page *page_of_session(const char *session) {
  return find_page(session, has_same_session);
}

page *page_of_target(const char *target) {
  return find_page(target, has_same_target);
}

/* A process that takes a page over knows it under another number until the page has moved there. */
page *page_of_number(guint64 number) {
  page *found = find_page(&number, has_same_number);
  if (!found)
    found = find_page(&number, is_under_way);
  return found ? found : page_any();
}

page *page_any(void) {
  return pages && pages->len > 0 ? g_ptr_array_index(pages, pages->len - 1) : NULL;
}

page *page_ref(page *of) {
  g_atomic_ref_count_inc(&of->references);
  return of;
}

void page_unref(page *of) {
  if (!g_atomic_ref_count_dec(&of->references))
    return;
  g_free(of->target);
  g_free(of->session);
  g_free(of->opener);
  g_object_unref(of->closing);
  g_object_unref(of->view);
  g_ptr_array_unref(of->held_decisions);
  g_ptr_array_unref(of->prepared);
  navigation_clear(&of->navigation);
  g_strfreev(of->files.paths);
  network_clear(of);
  g_free(of);
}

void page_event(page *of, const char *method, const char *params) {
  if (!of->is_closed)
    send_event(of->session, method, params);
}

/* The page's process learns how the page is called; sent to a page without a process, this starts one. */
static void greet(page *of) {
  g_autoptr(GString) hello = g_string_new(NULL);
  json_begin_object(hello, NULL);
  json_add_string(hello, "targetId", of->target);
  json_end_object(hello);
  WebKitUserMessage *message = webkit_user_message_new("Engine.hello", g_variant_new_string(hello->str));
  webkit_web_view_send_message_to_page(of->view, message, NULL, NULL, NULL);
}

static void connect_process(page *of, const char *params) {
  g_autoptr(JsonObject) said = json_parse_object(params, -1);
  of->process = json_integer(said, "process", 0);
  greet(of);
  of->is_connected = TRUE;
  page_send_waiting(of);
}

static void on_gesture_made(GObject *view, GAsyncResult *result, gpointer data) {
  g_autoptr(page) of = data;
  g_autoptr(JSCValue) done = webkit_web_view_evaluate_javascript_finish(WEBKIT_WEB_VIEW(view), result, NULL);
  if (!done)
    page_call(of, "Engine.runHeld", "{}", NULL, NULL);
}

/* Script that is run from here counts as the doing of a person. */
static void make_gesture(page *of) {
  webkit_web_view_evaluate_javascript(of->view, "runHeld()", -1, "browser-engine", NULL, of->closing,
                                      on_gesture_made, page_ref(of));
}

static gboolean on_page_message(WebKitWebView *view, WebKitUserMessage *message, gpointer data) {
  (void)view;
  page *of = data;
  GVariant *content = webkit_user_message_get_parameters(message);
  if (!content || !g_variant_is_of_type(content, G_VARIANT_TYPE_STRING))
    return FALSE;
  const char *name = webkit_user_message_get_name(message);
  const char *params = g_variant_get_string(content, NULL);
  if (strcmp(name, "Engine.created") == 0)
    connect_process(of, params);
  else if (strcmp(name, "Engine.documentLoaded") == 0)
    navigation_document_loaded(of);
  else if (strcmp(name, "Engine.gesture") == 0)
    make_gesture(of);
  else if (strcmp(name, "Page.navigatedWithinDocument") == 0)
    navigation_stepped(of, params);
  else
    page_event(of, name, params);
  return TRUE;
}

static void free_prepared(gpointer data) {
  prepared_command *of = data;
  g_free(of->method);
  g_free(of->params);
  g_free(of);
}

static void forget_prepared(page *of, const char *method) {
  for (guint index = of->prepared->len; index > 0; index--) {
    const prepared_command *each = g_ptr_array_index(of->prepared, index - 1);
    if (strcmp(each->method, method) == 0)
      g_ptr_array_remove_index(of->prepared, index - 1);
  }
}

static void keep_prepared(page *of, const char *method, const char *params) {
  prepared_command *kept = g_new0(prepared_command, 1);
  kept->method = g_strdup(method);
  kept->params = g_strdup(params);
  g_ptr_array_add(of->prepared, kept);
}

/* The opener can act in its window at once, before the tool has had a look at it; so the same requests are held. */
static void inherit_patterns(page *made, const page *opener) {
  for (guint index = 0; index < opener->prepared->len; index++) {
    const prepared_command *each = g_ptr_array_index(opener->prepared, index);
    if (strcmp(each->method, "Fetch.enable") == 0)
      keep_prepared(made, each->method, each->params);
  }
}

void page_prepare(page *of, request *asked) {
  if (of->prepared->len >= PREPARED_MAX) {
    answer_error(asked, "too much has been prepared for this page");
    return;
  }
  /* The patterns of requests replace those before; scripts and bindings add up. */
  if (strcmp(asked->method, "Fetch.enable") == 0)
    forget_prepared(of, asked->method);
  keep_prepared(of, asked->method, asked->text);
  page_forward(of, asked);
}

void page_acknowledge(page *of, request *asked) {
  (void)of;
  answer_empty(asked);
}

void page_bring_to_front(page *of, request *asked) {
  gtk_window_present(GTK_WINDOW(of->window));
  gtk_widget_grab_focus(GTK_WIDGET(of->view));
  answer_empty(asked);
}

/* For tests of what comes after: the process of the page ends as if by a fault of its own. */
void page_crash(page *of, request *asked) {
  if (gate_kill_process(of))
    answer_empty(asked);
  else
    answer_error(asked, "the page has no process");
}

void page_run(page *of, request *asked) {
  of->is_held = FALSE;
  policy_release(of);
  answer_empty(asked);
}

/* Allocated at once, so that whatever is asked next sees the new size; GTK would get to it later. */
void page_resize(page *of, int width, int height) {
  GtkAllocation whole = {0, 0, width, height};
  gtk_widget_set_size_request(GTK_WIDGET(of->view), width, height);
  gtk_window_resize(GTK_WINDOW(of->window), width, height);
  gtk_widget_size_allocate(GTK_WIDGET(of->view), &whole);
}

void page_set_metrics(page *of, request *asked) {
  const int side_pixels_max = 10000;
  const double scale = json_number(asked->params, "deviceScaleFactor", 1);
  const gint64 width = json_integer(asked->params, "width", 0);
  const gint64 height = json_integer(asked->params, "height", 0);
  if (scale != 0 && scale != 1)
    answer_unsupported(asked, "webkit draws at a device scale factor of 1 only");
  else if (json_flag(asked->params, "mobile", FALSE))
    answer_unsupported(asked, "webkit does not emulate mobile devices");
  else if (width < 0 || height < 0 || width > side_pixels_max || height > side_pixels_max)
    answer_error(asked, "width and height must be from 0 to %d", side_pixels_max);
  else {
    page_resize(of, width > 0 ? (int)width : the_browser.width, height > 0 ? (int)height : the_browser.height);
    answer_empty(asked);
  }
}

static void on_crash(WebKitWebView *view, WebKitWebProcessTerminationReason reason, gpointer data) {
  (void)view;
  page *of = data;
  if (reason == WEBKIT_WEB_PROCESS_TERMINATED_BY_API || of->is_closed)
    return;
  of->is_crashed = TRUE;
  page_send_waiting(of);
  page_event(of, "Inspector.targetCrashed", "{}");
}

static void on_close_asked(WebKitWebView *view, gpointer data) {
  (void)view;
  page_close(data);
}

static GtkWidget *on_create_asked(WebKitWebView *view, WebKitNavigationAction *action, gpointer data) {
  (void)view;
  page *opener = data;
  const char *uri = webkit_uri_request_get_uri(webkit_navigation_action_get_request(action));
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "url", uri);
  json_add_string(params, "windowName", "");
  json_begin_array(params, "windowFeatures");
  json_end_array(params);
  json_add_bool(params, "userGesture", webkit_navigation_action_is_user_gesture(action));
  json_end_object(params);
  page_event(opener, "Page.windowOpen", params->str);
  page *opened = page_open(opener);
  return opened ? GTK_WIDGET(opened->view) : NULL;
}

/* The list would be a window that nobody sees; the tool chooses options without opening it. */
static gboolean on_option_menu(WebKitWebView *view, WebKitOptionMenu *menu, GdkEvent *event,
                               GdkRectangle *place, gpointer data) {
  (void)view, (void)event, (void)place, (void)data;
  webkit_option_menu_close(menu);
  return TRUE;
}

static gboolean swallow(void) {
  return TRUE;
}

static gboolean on_color_chooser(WebKitWebView *view, WebKitColorChooserRequest *asked, gpointer data) {
  (void)view, (void)data;
  webkit_color_chooser_request_cancel(asked);
  return TRUE;
}

/* A server's question for a login is not asked of anyone: its own page is shown. A proxy is given what was given. */
static gboolean on_authenticate(WebKitWebView *view, WebKitAuthenticationRequest *asked, gpointer data) {
  (void)view, (void)data;
  const gboolean can_answer = webkit_authentication_request_is_for_proxy(asked) && the_browser.proxy_user &&
                              !webkit_authentication_request_is_retry(asked);
  if (!can_answer) {
    webkit_authentication_request_authenticate(asked, NULL);
    return TRUE;
  }
  WebKitCredential *login = webkit_credential_new(the_browser.proxy_user, the_browser.proxy_password,
                                                  WEBKIT_CREDENTIAL_PERSISTENCE_FOR_SESSION);
  webkit_authentication_request_authenticate(asked, login);
  webkit_credential_free(login);
  return TRUE;
}

static void connect_signals(page *made) {
  g_signal_connect(made->view, "user-message-received", G_CALLBACK(on_page_message), made);
  g_signal_connect(made->view, "web-process-terminated", G_CALLBACK(on_crash), made);
  g_signal_connect(made->view, "close", G_CALLBACK(on_close_asked), made);
  g_signal_connect(made->view, "create", G_CALLBACK(on_create_asked), made);
  g_signal_connect(made->view, "show-option-menu", G_CALLBACK(on_option_menu), made);
  g_signal_connect(made->view, "run-color-chooser", G_CALLBACK(on_color_chooser), made);
  g_signal_connect(made->view, "authenticate", G_CALLBACK(on_authenticate), made);
  g_signal_connect(made->view, "context-menu", G_CALLBACK(swallow), made);
  g_signal_connect(made->view, "print", G_CALLBACK(swallow), made);
  g_signal_connect(made->view, "show-notification", G_CALLBACK(swallow), made);
  device_watch_page(made);
  dialogs_watch(made);
  files_watch(made);
  input_watch(made);
  navigation_watch(made);
  network_watch(made);
  policy_watch(made);
}

static void show(page *made) {
  /* Nobody manages windows on a display of our own, so none has to be asked for its place or the focus. */
  made->window = gtk_window_new(the_browser.is_headless ? GTK_WINDOW_POPUP : GTK_WINDOW_TOPLEVEL);
  GtkWidget *fixed = gtk_fixed_new();
  gtk_fixed_put(GTK_FIXED(fixed), GTK_WIDGET(made->view), 0, 0);
  gtk_container_add(GTK_CONTAINER(made->window), fixed);
  gtk_widget_set_size_request(GTK_WIDGET(made->view), the_browser.width, the_browser.height);
  gtk_window_resize(GTK_WINDOW(made->window), the_browser.width, the_browser.height);
  gtk_widget_show_all(made->window);
  page_resize(made, the_browser.width, the_browser.height);
  gtk_widget_grab_focus(GTK_WIDGET(made->view));
}

static void announce(page *made, page *opener) {
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "sessionId", made->session);
  json_begin_object(params, "targetInfo");
  json_add_string(params, "targetId", made->target);
  json_add_string(params, "type", "page");
  json_add_string(params, "title", "");
  json_add_string(params, "url", "");
  json_add_bool(params, "attached", TRUE);
  json_add_bool(params, "canAccessOpener", opener != NULL);
  if (opener)
    json_add_string(params, "openerId", opener->target);
  json_end_object(params);
  json_add_bool(params, "waitingForDebugger", TRUE);
  json_end_object(params);
  send_event(NULL, "Target.attachedToTarget", params->str);
}

page *page_open(page *opener) {
  if (!pages)
    pages = g_ptr_array_new_with_free_func((GDestroyNotify)page_unref);
  if (pages->len >= PAGES_MAX)
    return NULL;
  page *made = g_new0(page, 1);
  g_atomic_ref_count_init(&made->references);
  made->target = g_strdup_printf("W%u", ++pages_made);
  made->session = g_strdup_printf("S%u", pages_made);
  made->opener = opener ? g_strdup(opener->target) : NULL;
  made->closing = g_cancellable_new();
  made->held_decisions = g_ptr_array_new_with_free_func(g_object_unref);
  made->prepared = g_ptr_array_new_with_free_func(free_prepared);
  if (opener)
    inherit_patterns(made, opener);
  made->is_held = TRUE;
  g_autoptr(WebKitSettings) settings = browser_page_settings();
  made->view = opener ? g_object_new(WEBKIT_TYPE_WEB_VIEW, "related-view", opener->view, "settings", settings, NULL)
                      : g_object_new(WEBKIT_TYPE_WEB_VIEW, "web-context", the_browser.context, "settings",
                                     settings, NULL);
  g_object_ref_sink(made->view);
  g_ptr_array_add(pages, made);
  connect_signals(made);
  show(made);
  announce(made, opener);
  if (!opener)
    greet(made);
  return made;
}

static gboolean shares_process(const page *closed) {
  for (guint index = 0; index < pages->len; index++) {
    const page *each = g_ptr_array_index(pages, index);
    if (each != closed && each->process == closed->process)
      return TRUE;
  }
  return FALSE;
}

void page_close(page *closed) {
  if (closed->is_closed)
    return;
  g_autoptr(page) kept = page_ref(closed);
  /* A process that does not answer would go on for ever, and nobody else needs it. */
  const gboolean is_stuck = closed->calls_open > 0 && !closed->is_crashed && !shares_process(closed);
  g_signal_handlers_disconnect_by_data(closed->view, closed);
  dialogs_drop(closed);
  files_drop(closed);
  closed->is_closed = TRUE;
  g_cancellable_cancel(closed->closing);
  page_send_waiting(closed);
  input_drop(closed);
  navigation_drop(closed);
  if (is_stuck)
    webkit_web_view_terminate_web_process(closed->view);
  gtk_widget_destroy(closed->window);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "sessionId", closed->session);
  json_add_string(params, "targetId", closed->target);
  json_end_object(params);
  send_event(NULL, "Target.detachedFromTarget", params->str);
  g_ptr_array_remove(pages, closed);
}
