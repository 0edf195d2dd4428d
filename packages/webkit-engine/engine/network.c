#include "network.h"

#include <string.h>

#include "../common/json.h"

/* Requests whose body can still be asked for. */
#define RESOURCES_MAX 500u
#define BODY_BYTES_MAX (8u * 1024u * 1024u)

typedef struct resource {
  page *of; /* Outlives the resource: it owns it. */
  char *id;
  WebKitWebResource *source;
  const char *type;
} resource;

static guint resources_seen;

static void free_resource(gpointer data) {
  resource *of = data;
  g_signal_handlers_disconnect_by_data(of->source, of);
  g_object_unref(of->source);
  g_free(of->id);
  g_free(of);
}

static double now_s(void) {
  return (double)g_get_monotonic_time() / G_TIME_SPAN_SECOND;
}

static void add_header(const char *name, const char *value, gpointer out) {
  json_add_string(out, name, value);
}

static void add_headers(GString *out, SoupMessageHeaders *headers) {
  json_begin_object(out, "headers");
  if (headers)
    soup_message_headers_foreach(headers, add_header, out);
  json_end_object(out);
}

static void add_response(GString *out, const char *key, WebKitURIResponse *response) {
  json_begin_object(out, key);
  json_add_string(out, "url", webkit_uri_response_get_uri(response));
  json_add_int(out, "status", webkit_uri_response_get_status_code(response));
  json_add_string(out, "statusText", "");
  json_add_string(out, "mimeType", webkit_uri_response_get_mime_type(response));
  json_add_string(out, "charset", "");
  add_headers(out, webkit_uri_response_get_http_headers(response));
  json_end_object(out);
}

/* WebKit does not say what a request is for, but tells the server, in the words of Fetch. */
static const char *type_of(page *of, WebKitWebResource *source, WebKitURIRequest *sent) {
  static const char *const types[][2] = {
      {"document", "Document"}, {"iframe", "Document"}, {"frame", "Document"},      {"object", "Document"},
      {"embed", "Document"},    {"style", "Stylesheet"}, {"image", "Image"},        {"audio", "Media"},
      {"video", "Media"},       {"font", "Font"},        {"script", "Script"},      {"empty", "Fetch"},
      {"manifest", "Manifest"}, {"track", "TextTrack"},  {"report", "CSPViolationReport"},
  };
  if (webkit_web_view_get_main_resource(of->view) == source)
    return "Document";
  SoupMessageHeaders *headers = webkit_uri_request_get_http_headers(sent);
  const char *destination = headers ? soup_message_headers_get_one(headers, "Sec-Fetch-Dest") : NULL;
  for (gsize index = 0; destination && index < G_N_ELEMENTS(types); index++)
    if (strcmp(types[index][0], destination) == 0)
      return types[index][1];
  return "Other";
}

/* Only of the main document is it known which frame it is for. */
static void add_place(const resource *of, GString *out) {
  const gboolean is_main = webkit_web_view_get_main_resource(of->of->view) == of->source;
  json_add_string(out, "requestId", of->id);
  json_add_string(out, "loaderId", "");
  json_add_string(out, "frameId", is_main ? of->of->target : "");
  json_add_double(out, "timestamp", now_s());
  json_add_string(out, "type", of->type);
}

static void report_request(const resource *of, WebKitURIRequest *sent, WebKitURIResponse *redirected) {
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  add_place(of, params);
  json_add_string(params, "documentURL", webkit_web_view_get_uri(of->of->view));
  json_add_double(params, "wallTime", (double)g_get_real_time() / G_TIME_SPAN_SECOND);
  json_begin_object(params, "request");
  json_add_string(params, "url", webkit_uri_request_get_uri(sent));
  json_add_string(params, "method", webkit_uri_request_get_http_method(sent));
  add_headers(params, webkit_uri_request_get_http_headers(sent));
  json_end_object(params);
  if (redirected)
    add_response(params, "redirectResponse", redirected);
  json_end_object(params);
  page_event(of->of, "Network.requestWillBeSent", params->str);
}

static void on_sent(WebKitWebResource *source, WebKitURIRequest *sent, WebKitURIResponse *redirected,
                    gpointer data) {
  (void)source;
  /* The first time it is the request that was reported when the loading began. */
  if (redirected)
    report_request(data, sent, redirected);
}

static void on_response(WebKitWebResource *source, GParamSpec *property, gpointer data) {
  (void)property;
  const resource *of = data;
  WebKitURIResponse *response = webkit_web_resource_get_response(source);
  if (!response)
    return;
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  add_place(of, params);
  add_response(params, "response", response);
  json_end_object(params);
  page_event(of->of, "Network.responseReceived", params->str);
}

static void on_finished(WebKitWebResource *source, gpointer data) {
  const resource *of = data;
  WebKitURIResponse *response = webkit_web_resource_get_response(source);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "requestId", of->id);
  json_add_double(params, "timestamp", now_s());
  json_add_int(params, "encodedDataLength",
               response ? (gint64)webkit_uri_response_get_content_length(response) : 0);
  json_end_object(params);
  page_event(of->of, "Network.loadingFinished", params->str);
}

static void on_failed(WebKitWebResource *source, GError *error, gpointer data) {
  (void)source;
  const resource *of = data;
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "requestId", of->id);
  json_add_double(params, "timestamp", now_s());
  json_add_string(params, "type", of->type);
  json_add_string(params, "errorText", error->message);
  json_end_object(params);
  page_event(of->of, "Network.loadingFailed", params->str);
}

static void on_started(WebKitWebView *view, WebKitWebResource *source, WebKitURIRequest *sent, gpointer data) {
  (void)view;
  page *of = data;
  resource *made = g_new0(resource, 1);
  made->of = of;
  made->id = g_strdup_printf("R%u", ++resources_seen);
  made->source = g_object_ref(source);
  made->type = type_of(of, source, sent);
  g_hash_table_insert(of->resources, made->id, made);
  g_queue_push_tail(&of->resource_order, made->id);
  if (g_queue_get_length(&of->resource_order) > RESOURCES_MAX)
    g_hash_table_remove(of->resources, g_queue_pop_head(&of->resource_order));
  g_signal_connect(source, "sent-request", G_CALLBACK(on_sent), made);
  g_signal_connect(source, "notify::response", G_CALLBACK(on_response), made);
  g_signal_connect(source, "finished", G_CALLBACK(on_finished), made);
  g_signal_connect(source, "failed", G_CALLBACK(on_failed), made);
  report_request(made, sent, NULL);
}

void network_watch(page *of) {
  of->resources = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, free_resource);
  g_signal_connect(of->view, "resource-load-started", G_CALLBACK(on_started), of);
}

void network_clear(page *of) {
  g_queue_clear(&of->resource_order);
  g_hash_table_unref(of->resources);
}

/* WebKit keeps what documents, styles, scripts and pictures are made of; of what script fetches it has nothing. */
static void on_data(GObject *source, GAsyncResult *result, gpointer data) {
  request *asked = data;
  gsize bytes = 0;
  g_autofree guchar *body =
      webkit_web_resource_get_data_finish(WEBKIT_WEB_RESOURCE(source), result, &bytes, NULL);
  if (!body || bytes == 0 || (bytes == 1 && body[0] == '\0')) {
    answer_error(asked, "No data found for resource with given identifier");
    return;
  }
  if (bytes > BODY_BYTES_MAX) {
    answer_error(asked, "The body is larger than %u bytes", BODY_BYTES_MAX);
    return;
  }
  const gboolean is_text = g_utf8_validate_len((const char *)body, bytes, NULL);
  g_autofree char *text = is_text ? g_strndup((const char *)body, bytes) : g_base64_encode(body, bytes);
  g_autoptr(GString) answered = g_string_new(NULL);
  json_begin_object(answered, NULL);
  json_add_string(answered, "body", text);
  json_add_bool(answered, "base64Encoded", !is_text);
  json_end_object(answered);
  answer(asked, answered->str);
}

void network_get_body(page *of, request *asked) {
  resource *wanted = g_hash_table_lookup(of->resources, json_string(asked->params, "requestId", ""));
  if (wanted)
    webkit_web_resource_get_data(wanted->source, of->closing, on_data, asked);
  else
    answer_error(asked, "No resource with given identifier found");
}
