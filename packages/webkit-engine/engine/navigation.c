#include "navigation.h"

#include <string.h>

#include "../common/json.h"
#include "browser.h"
#include "gate.h"

#define HISTORY_ENTRIES_MAX 50u
/* How long a document that is being left may keep silent. */
#define PATIENCE_MS 1000u

static double now_s(void) {
  return (double)g_get_monotonic_time() / G_TIME_SPAN_SECOND;
}

static void loader_name(guint number, char name[16]) {
  g_snprintf(name, 16, "L%u", number);
}

static void lifecycle(page *of, const char *name) {
  char loader[16];
  loader_name(of->navigation.loader, loader);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "frameId", of->target);
  json_add_string(params, "loaderId", loader);
  json_add_string(params, "name", name);
  json_add_double(params, "timestamp", now_s());
  json_end_object(params);
  page_event(of, "Page.lifecycleEvent", params->str);
}

static void stopped_loading(page *of) {
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "frameId", of->target);
  json_end_object(params);
  page_event(of, "Page.frameStoppedLoading", params->str);
}

/* The answer to Page.navigate; without a loader the address is within the document that is there. */
static void answer_asked(page *of, gboolean has_loader, const char *error_text) {
  request *asked = g_steal_pointer(&of->navigation.asked);
  g_clear_handle_id(&of->navigation.patience, g_source_remove);
  if (!asked)
    return;
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_string(result, "frameId", of->target);
  if (has_loader) {
    char loader[16];
    loader_name(of->navigation.loader, loader);
    json_add_string(result, "loaderId", loader);
  }
  if (error_text) {
    json_add_string(result, "errorText", error_text);
    json_add_bool(result, "isDownload", of->navigation.was_download);
  }
  json_end_object(result);
  answer(asked, result->str);
}

static void forget_reasons(page *of) {
  of->navigation.was_blocked = FALSE;
  of->navigation.was_download = FALSE;
  of->navigation.was_empty = FALSE;
}

static void on_start(page *of) {
  of->navigation.next_loader = ++of->navigation.loaders;
  of->navigation.has_begun = TRUE;
  of->navigation.is_step = FALSE;
  g_autoptr(GString) params = g_string_new(NULL);
  char loader[16];
  loader_name(of->navigation.next_loader, loader);
  json_begin_object(params, NULL);
  json_add_string(params, "frameId", of->target);
  json_add_string(params, "url", webkit_web_view_get_uri(of->view));
  json_add_string(params, "loaderId", loader);
  json_add_string(params, "navigationType", "differentDocument");
  json_end_object(params);
  page_event(of, "Page.frameStartedNavigating", params->str);
}

/* For a port that no web server has, WebKit loads an empty page and says nothing. */
static gboolean is_blank_instead(const page *of, const char *uri) {
  const request *asked = of->navigation.asked;
  const char *wanted = asked ? json_string(asked->params, "url", "") : "";
  return g_strcmp0(uri, "about:blank") == 0 && g_str_has_prefix(wanted, "http");
}

static void on_commit(page *of) {
  const char *uri = webkit_web_view_get_uri(of->view);
  char loader[16];
  of->navigation.loader = of->navigation.next_loader;
  of->navigation.next_loader = 0;
  of->navigation.is_load_due = FALSE;
  if (of->next_process != 0)
    of->process = of->next_process;
  of->next_process = 0;
  forget_reasons(of);
  g_free(of->navigation.committed_uri);
  of->navigation.committed_uri = g_strdup(uri);
  loader_name(of->navigation.loader, loader);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_begin_object(params, "frame");
  json_add_string(params, "id", of->target);
  json_add_string(params, "loaderId", loader);
  json_add_string(params, "url", uri);
  json_add_string(params, "domainAndRegistry", "");
  json_add_string(params, "securityOrigin", "");
  json_add_string(params, "mimeType", "text/html");
  json_end_object(params);
  json_add_string(params, "type", "Navigation");
  json_end_object(params);
  lifecycle(of, "init");
  page_event(of, "Page.frameNavigated", params->str);
  lifecycle(of, "commit");
  if (is_blank_instead(of, uri))
    answer_asked(of, FALSE, "net::ERR_UNSAFE_PORT");
  else
    answer_asked(of, TRUE, NULL);
}

static void loaded(page *of) {
  of->navigation.is_load_due = FALSE;
  lifecycle(of, "load");
  stopped_loading(of);
}

static void on_finish_settled(page *of, gpointer data) {
  const gboolean is_same = of->navigation.loader == GPOINTER_TO_UINT(data);
  if (is_same && of->navigation.is_load_due && of->navigation.next_loader == 0)
    loaded(of);
}

/* WebKit says that loading has finished after a failure too. The document before stays then. */
static void on_failure(page *of) {
  of->navigation.next_loader = 0;
  if (of->navigation.is_load_due)
    loaded(of);
  else
    stopped_loading(of);
}

/* Some documents lead to the next one as soon as they are loaded. Only the last of them counts as loaded. */
static void on_finish(page *of) {
  if (of->navigation.next_loader != 0 || of->navigation.loader == 0) {
    on_failure(of);
    return;
  }
  of->navigation.is_load_due = TRUE;
  page_settle(of, on_finish_settled, GUINT_TO_POINTER(of->navigation.loader));
}

static void on_load_changed(WebKitWebView *view, WebKitLoadEvent event, gpointer data) {
  (void)view;
  page *of = data;
  switch (event) {
    case WEBKIT_LOAD_STARTED:
      on_start(of);
      break;
    case WEBKIT_LOAD_REDIRECTED:
      break;
    case WEBKIT_LOAD_COMMITTED:
      on_commit(of);
      break;
    case WEBKIT_LOAD_FINISHED:
      on_finish(of);
      break;
  }
}

void navigation_document_loaded(page *of) {
  lifecycle(of, "DOMContentLoaded");
}

static gboolean is_cancelled(const GError *error) {
  return g_error_matches(error, WEBKIT_NETWORK_ERROR, WEBKIT_NETWORK_ERROR_CANCELLED) ||
         g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
}

/* The tool knows what to advise about Chromium's names for what can go wrong. */
static const char *error_name(const page *of, const char *uri, const GError *error) {
  if (of->navigation.was_blocked)
    return "net::ERR_BLOCKED_BY_CLIENT";
  if (of->navigation.was_empty)
    return "net::ERR_HTTP_RESPONSE_CODE_FAILURE";
  if (g_error_matches(error, G_RESOLVER_ERROR, G_RESOLVER_ERROR_NOT_FOUND) ||
      g_error_matches(error, G_RESOLVER_ERROR, G_RESOLVER_ERROR_TEMPORARY_FAILURE))
    return "net::ERR_NAME_NOT_RESOLVED";
  if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CONNECTION_REFUSED))
    return browser_goes_through_proxy(uri) ? "net::ERR_PROXY_CONNECTION_FAILED" : "net::ERR_CONNECTION_REFUSED";
  if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_TIMED_OUT))
    return "net::ERR_CONNECTION_TIMED_OUT";
  if (error->domain == G_IO_ERROR && error->code >= G_IO_ERROR_PROXY_FAILED &&
      error->code <= G_IO_ERROR_PROXY_NOT_ALLOWED)
    return "net::ERR_PROXY_CONNECTION_FAILED";
  if (error->domain == G_TLS_ERROR)
    return "net::ERR_SSL_PROTOCOL_ERROR";
  if (is_cancelled(error) || error->domain == WEBKIT_POLICY_ERROR)
    return "net::ERR_ABORTED";
  return NULL;
}

/* A loading that the one asked for has taken the place of fails too, before that one begins. */
static gboolean is_of_another(const page *of, const GError *error) {
  const navigation *at = &of->navigation;
  return !at->has_begun && !at->was_blocked && !at->was_download && !at->was_empty && is_cancelled(error);
}

static gboolean on_load_failed(WebKitWebView *view, WebKitLoadEvent event, char *uri, GError *error,
                               gpointer data) {
  (void)view;
  page *of = data;
  const gboolean is_of_document = event == WEBKIT_LOAD_COMMITTED || event == WEBKIT_LOAD_FINISHED;
  if (is_of_document || is_of_another(of, error))
    return TRUE;
  of->next_process = 0;
  const char *name = error_name(of, uri, error);
  answer_asked(of, FALSE, name ? name : error->message);
  return TRUE;
}

static gboolean on_tls_failed(WebKitWebView *view, char *uri, GTlsCertificate *certificate,
                              GTlsCertificateFlags errors, gpointer data) {
  (void)view, (void)uri, (void)certificate;
  page *of = data;
  const char *name = "net::ERR_CERT_INVALID";
  if (errors & G_TLS_CERTIFICATE_UNKNOWN_CA)
    name = "net::ERR_CERT_AUTHORITY_INVALID";
  else if (errors & G_TLS_CERTIFICATE_BAD_IDENTITY)
    name = "net::ERR_CERT_COMMON_NAME_INVALID";
  else if (errors & (G_TLS_CERTIFICATE_EXPIRED | G_TLS_CERTIFICATE_NOT_ACTIVATED))
    name = "net::ERR_CERT_DATE_INVALID";
  answer_asked(of, FALSE, name);
  stopped_loading(of);
  return TRUE;
}

void navigation_stepped(page *of, const char *params) {
  page_event(of, "Page.navigatedWithinDocument", params);
  if (of->navigation.is_step)
    answer_asked(of, FALSE, NULL);
}

void navigation_watch(page *of) {
  g_signal_connect(of->view, "load-changed", G_CALLBACK(on_load_changed), of);
  g_signal_connect(of->view, "load-failed", G_CALLBACK(on_load_failed), of);
  g_signal_connect(of->view, "load-failed-with-tls-errors", G_CALLBACK(on_tls_failed), of);
}

void navigation_drop(page *of) {
  answer_asked(of, FALSE, "net::ERR_ABORTED");
}

void navigation_clear(navigation *of) {
  g_free(of->committed_uri);
}

static gboolean is_same_document(const char *from, const char *to) {
  if (!from || !strchr(to, '#'))
    return FALSE;
  const size_t bytes = strcspn(to, "#");
  return strcspn(from, "#") == bytes && strncmp(from, to, bytes) == 0;
}

/* The address that is there already, written with its fragment, changes nothing that would be announced. */
static void on_step_settled(page *of, gpointer data) {
  (void)data;
  if (of->navigation.next_loader == 0 && of->navigation.is_step)
    answer_asked(of, FALSE, NULL);
}

static void on_heard(page *of, int code, const char *text, gpointer data) {
  (void)code, (void)text, (void)data;
  of->navigation.is_heard = TRUE;
}

/* A document may run script when it is left, and without end; what is in the way then is stopped. */
static gboolean on_patience_over(gpointer data) {
  page *of = data;
  if (!of->navigation.is_heard) {
    gate_stop(of);
    return G_SOURCE_CONTINUE;
  }
  of->navigation.is_heard = FALSE;
  page_call(of, "Engine.ping", "{}", on_heard, NULL);
  return G_SOURCE_CONTINUE;
}

void navigation_go(page *of, request *asked) {
  const char *uri = json_string(asked->params, "url", "");
  if (*uri == '\0') {
    answer_error(asked, "Page.navigate needs a url");
    return;
  }
  answer_asked(of, FALSE, "net::ERR_ABORTED");
  of->navigation.asked = asked;
  of->navigation.has_begun = FALSE;
  of->navigation.is_heard = TRUE;
  of->navigation.patience = g_timeout_add(PATIENCE_MS, on_patience_over, of);
  forget_reasons(of);
  of->navigation.is_step = is_same_document(of->navigation.committed_uri, uri);
  webkit_web_view_load_uri(of->view, uri);
  if (of->navigation.is_step)
    page_settle(of, on_step_settled, NULL);
}

void navigation_stop(page *of, request *asked) {
  webkit_web_view_stop_loading(of->view);
  answer_empty(asked);
}

static void add_entry(GString *out, int id, WebKitBackForwardListItem *item) {
  const char *uri = webkit_back_forward_list_item_get_uri(item);
  json_begin_object(out, NULL);
  json_add_int(out, "id", id);
  json_add_string(out, "url", uri);
  json_add_string(out, "userTypedURL", uri);
  json_add_string(out, "title", webkit_back_forward_list_item_get_title(item));
  json_add_string(out, "transitionType", "other");
  json_end_object(out);
}

/* An entry's id is its place as seen from the current one. */
void navigation_history(page *of, request *asked) {
  WebKitBackForwardList *list = webkit_web_view_get_back_forward_list(of->view);
  const int limit = (int)HISTORY_ENTRIES_MAX;
  int first = 0;
  while (first > -limit && webkit_back_forward_list_get_nth_item(list, first - 1))
    first--;
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_int(result, "currentIndex", -first);
  json_begin_array(result, "entries");
  for (int place = first; place <= limit; place++) {
    WebKitBackForwardListItem *item = webkit_back_forward_list_get_nth_item(list, place);
    if (item)
      add_entry(result, place, item);
    else if (place >= 0)
      break;
  }
  json_end_array(result);
  json_end_object(result);
  answer(asked, result->str);
}

void navigation_go_to_entry(page *of, request *asked) {
  WebKitBackForwardList *list = webkit_web_view_get_back_forward_list(of->view);
  const gint64 place = json_integer(asked->params, "entryId", 0);
  const gboolean is_in_range = ABS(place) <= (gint64)HISTORY_ENTRIES_MAX;
  WebKitBackForwardListItem *item =
      is_in_range ? webkit_back_forward_list_get_nth_item(list, (int)place) : NULL;
  if (!item) {
    answer_error(asked, "No entry with passed id");
    return;
  }
  webkit_web_view_go_to_back_forward_list_item(of->view, item);
  answer_empty(asked);
}
