/* Requests that the tool wants to look at before they are made. The page stands still until it has. */
#include <libsoup/soup.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../common/gate.h"
#include "line.h"
#include "page.h"

#define PATTERNS_MAX 1000u
/* A tool that says nothing for so long is taken to have refused. */
#define ANSWER_WAIT_S_MAX 10

static int questions = -1;

void requests_start(const char *path) {
  questions = line_open(path, GATE_QUESTIONS);
  const struct timeval limit = {ANSWER_WAIT_S_MAX, 0};
  if (questions >= 0)
    setsockopt(questions, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static gboolean is_suspect(const web_page *of, const char *uri) {
  const gsize bytes = strlen(uri);
  for (guint index = 0; index < of->suspect_patterns->len; index++)
    if (g_pattern_spec_match(g_ptr_array_index(of->suspect_patterns, index), bytes, uri, NULL))
      return TRUE;
  return FALSE;
}

static void add_header(const char *name, const char *value, gpointer out) {
  json_add_string(out, name, value);
}

static GString *write_question(const web_page *of, const char *uri, const char *method,
                               SoupMessageHeaders *headers) {
  const char *accept = headers ? soup_message_headers_get_one(headers, "Accept") : NULL;
  GString *question = g_string_new(NULL);
  json_begin_object(question, NULL);
  json_add_string(question, "target", of->target);
  json_add_string(question, "url", uri);
  json_add_string(question, "method", method);
  json_add_bool(question, "isDocument", accept && g_str_has_prefix(accept, "text/html"));
  json_begin_object(question, "headers");
  if (headers)
    soup_message_headers_foreach(headers, add_header, question);
  json_end_object(question);
  json_end_object(question);
  return question;
}

static JsonObject *exchange(const GString *question) {
  guint32 bytes = (guint32)question->len;
  if (questions < 0 || question->len > GATE_JSON_BYTES_MAX || !line_write(questions, &bytes, sizeof bytes) ||
      !line_write(questions, question->str, question->len) || !line_read(questions, &bytes, sizeof bytes) ||
      bytes > GATE_JSON_BYTES_MAX)
    return NULL;
  g_autofree char *text = g_malloc(bytes + 1);
  return line_read(questions, text, bytes) ? json_parse_object(text, bytes) : NULL;
}

/* What the engine says to it, or NULL, which is a refusal. */
JsonObject *requests_ask(const GString *question) {
  JsonObject *told = exchange(question);
  /* An answer that comes too late must not be taken for that to the next question. */
  if (!told && questions >= 0) {
    close(questions);
    questions = -1;
  }
  return told;
}

static void replace_headers(WebKitURIRequest *request, JsonArray *given) {
  SoupMessageHeaders *headers = webkit_uri_request_get_http_headers(request);
  for (guint index = 0; headers && index < json_array_get_length(given); index++) {
    JsonNode *node = json_array_get_element(given, index);
    JsonObject *header = JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
    const char *name = json_string(header, "name", NULL);
    const char *value = json_string(header, "value", NULL);
    if (name && value)
      soup_message_headers_replace(headers, name, value);
  }
}

/* TRUE: the request is not made. */
static gboolean on_request(WebKitWebPage *source, WebKitURIRequest *request, WebKitURIResponse *redirected,
                           gpointer data) {
  (void)source, (void)redirected;
  web_page *of = data;
  if (!is_suspect(of, webkit_uri_request_get_uri(request)))
    return FALSE;
  g_autoptr(GString) question =
      write_question(of, webkit_uri_request_get_uri(request), webkit_uri_request_get_http_method(request),
                     webkit_uri_request_get_http_headers(request));
  g_autoptr(JsonObject) told = requests_ask(question);
  if (json_flag(told, "refused", TRUE))
    return TRUE;
  JsonArray *headers = json_array(told, "headers");
  if (headers)
    replace_headers(request, headers);
  return FALSE;
}

gboolean requests_may_go(web_page *of, const char *uri) {
  if (!is_suspect(of, uri))
    return TRUE;
  g_autoptr(GString) question = write_question(of, uri, "GET", NULL);
  g_autoptr(JsonObject) told = requests_ask(question);
  return !json_flag(told, "refused", TRUE);
}

void requests_watch(web_page *of) {
  g_signal_connect(of->source, "send-request", G_CALLBACK(on_request), of);
}

void requests_enable(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  JsonArray *given = json_array(params, "patterns");
  const guint count = given ? json_array_get_length(given) : 0;
  if (count > PATTERNS_MAX) {
    reply_error(message, CODE_SERVER_ERROR, "too many patterns");
    return;
  }
  g_ptr_array_set_size(of->suspect_patterns, 0);
  for (guint index = 0; index < count; index++) {
    JsonNode *node = json_array_get_element(given, index);
    JsonObject *each = JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
    g_ptr_array_add(of->suspect_patterns, g_pattern_spec_new(json_string(each, "urlPattern", "*")));
  }
  reply_result(message, "{}");
}
