#include "gate.h"

#include <gio/gunixsocketaddress.h>
#include <signal.h>
#include <string.h>

#include "../common/gate.h"
#include "../common/json.h"

/* Requests that wait for the tool; each page's process can have but one. */
#define PAUSED_MAX 1000u

typedef struct line {
  GSocketConnection *connection;
  gate_hello hello;
  guint32 question_bytes;
  char *question;
} line;

static GSocketService *service;
static char *path;
/* Of line, by process: where a script can be stopped. */
static GHashTable *stop_lines;
/* Of line, by the id under which the tool knows the request that waits there. */
static GHashTable *paused;
static guint questions_asked;

static void free_line(gpointer data) {
  line *of = data;
  g_object_unref(of->connection);
  g_free(of->question);
  g_free(of);
}

static void wait_for_question(line *of);

static void on_answer_written(GObject *stream, GAsyncResult *result, gpointer data) {
  if (g_output_stream_write_all_finish(G_OUTPUT_STREAM(stream), result, NULL, NULL))
    wait_for_question(data);
  else
    free_line(data);
}

static void tell(line *of, const GString *told) {
  const guint32 bytes = (guint32)told->len;
  g_free(of->question);
  of->question = g_malloc(sizeof bytes + bytes);
  memcpy(of->question, &bytes, sizeof bytes);
  memcpy(of->question + sizeof bytes, told->str, bytes);
  GOutputStream *out = g_io_stream_get_output_stream(G_IO_STREAM(of->connection));
  g_output_stream_write_all_async(out, of->question, sizeof bytes + bytes, G_PRIORITY_HIGH, NULL,
                                  on_answer_written, of);
}

/* The page's process goes on: with the request, with these headers instead of its own, or without it. */
static void let_go(line *of, gboolean is_refused, JsonArray *headers) {
  g_autoptr(GString) told = g_string_new(NULL);
  json_begin_object(told, NULL);
  json_add_bool(told, "refused", is_refused);
  if (headers) {
    g_autoptr(JsonNode) node = json_node_new(JSON_NODE_ARRAY);
    json_node_set_array(node, headers);
    g_autofree char *text = json_to_string(node, FALSE);
    json_add_raw(told, "headers", text);
  }
  json_end_object(told);
  tell(of, told);
}

/* A page that moves into another process, as WebKit sometimes wants it, is held to the same rules from the start. */
static void tell_prepared(line *of, gint64 number) {
  page *known = page_of_number((guint64)number);
  if (known)
    known->next_process = of->hello.process;
  g_autoptr(GString) told = g_string_new(NULL);
  json_begin_object(told, NULL);
  json_add_string(told, "targetId", known ? known->target : "");
  json_begin_array(told, "commands");
  for (guint index = 0; known && index < known->prepared->len; index++) {
    const prepared_command *each = g_ptr_array_index(known->prepared, index);
    json_begin_object(told, NULL);
    json_add_string(told, "method", each->method);
    json_add_raw(told, "params", each->params);
    json_end_object(told);
  }
  json_end_array(told);
  json_end_object(told);
  tell(of, told);
}

static void report_pause(page *of, const char *id, JsonObject *question) {
  g_autofree char *headers = NULL;
  JsonNode *given = json_object_get_member(question, "headers");
  if (given)
    headers = json_to_string(given, FALSE);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "requestId", id);
  json_add_string(params, "frameId", of->target);
  json_add_string(params, "resourceType", "Other");
  json_begin_object(params, "request");
  json_add_string(params, "url", json_string(question, "url", ""));
  json_add_string(params, "method", json_string(question, "method", "GET"));
  json_add_raw(params, "headers", headers ? headers : "{}");
  json_end_object(params);
  json_end_object(params);
  page_event(of, "Fetch.requestPaused", params->str);
}

static void on_question_read(GObject *stream, GAsyncResult *result, gpointer data) {
  line *of = data;
  gsize got = 0;
  if (!g_input_stream_read_all_finish(G_INPUT_STREAM(stream), result, &got, NULL) || got < of->question_bytes) {
    free_line(of);
    return;
  }
  g_autoptr(JsonObject) question = json_parse_object(of->question, (gssize)got);
  if (question && json_object_has_member(question, "created")) {
    tell_prepared(of, json_integer(question, "created", 0));
    return;
  }
  page *asking = question ? page_of_target(json_string(question, "target", "")) : NULL;
  if (!asking || g_hash_table_size(paused) >= PAUSED_MAX) {
    let_go(of, TRUE, NULL);
    return;
  }
  char *id = g_strdup_printf("G%u", ++questions_asked);
  g_hash_table_insert(paused, id, of);
  report_pause(asking, id, question);
}

static void on_length_read(GObject *stream, GAsyncResult *result, gpointer data) {
  line *of = data;
  gsize got = 0;
  const gboolean is_read = g_input_stream_read_all_finish(G_INPUT_STREAM(stream), result, &got, NULL);
  if (!is_read || got < sizeof of->question_bytes || of->question_bytes > GATE_JSON_BYTES_MAX) {
    free_line(of);
    return;
  }
  g_free(of->question);
  of->question = g_malloc0(of->question_bytes + 1);
  g_input_stream_read_all_async(G_INPUT_STREAM(stream), of->question, of->question_bytes, G_PRIORITY_HIGH,
                                NULL, on_question_read, of);
}

static void wait_for_question(line *of) {
  GInputStream *in = g_io_stream_get_input_stream(G_IO_STREAM(of->connection));
  g_input_stream_read_all_async(in, &of->question_bytes, sizeof of->question_bytes, G_PRIORITY_HIGH, NULL,
                                on_length_read, of);
}

/* Nothing comes on it but its end, which is that of the process. */
static void on_stop_line_ended(GObject *stream, GAsyncResult *result, gpointer data) {
  const line *of = data;
  g_input_stream_read_finish(G_INPUT_STREAM(stream), result, NULL);
  g_hash_table_remove(stop_lines, &of->hello.process);
}

static void keep_stop_line(line *of) {
  static char nothing;
  GInputStream *in = g_io_stream_get_input_stream(G_IO_STREAM(of->connection));
  g_hash_table_replace(stop_lines, &of->hello.process, of);
  g_input_stream_read_async(in, &nothing, 1, G_PRIORITY_DEFAULT, NULL, on_stop_line_ended, of);
}

static void on_hello_read(GObject *stream, GAsyncResult *result, gpointer data) {
  line *of = data;
  gsize got = 0;
  const gboolean is_read = g_input_stream_read_all_finish(G_INPUT_STREAM(stream), result, &got, NULL);
  const gboolean is_known = g_hash_table_contains(stop_lines, &of->hello.process);
  if (!is_read || got < sizeof of->hello || (of->hello.purpose == GATE_STOP && is_known))
    free_line(of);
  else if (of->hello.purpose == GATE_STOP)
    keep_stop_line(of);
  else
    wait_for_question(of);
}

static gboolean on_incoming(GSocketService *listening, GSocketConnection *connection, GObject *source,
                            gpointer data) {
  (void)listening, (void)source, (void)data;
  line *made = g_new0(line, 1);
  made->connection = g_object_ref(connection);
  GInputStream *in = g_io_stream_get_input_stream(G_IO_STREAM(connection));
  g_input_stream_read_all_async(in, &made->hello, sizeof made->hello, G_PRIORITY_HIGH, NULL, on_hello_read,
                                made);
  return TRUE;
}

gboolean gate_listen(const char *profile, GError **error) {
  path = g_build_filename(profile, GATE_SOCKET_NAME, NULL);
  stop_lines = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_line);
  paused = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  service = g_socket_service_new();
  g_autoptr(GSocketAddress) address = g_unix_socket_address_new(path);
  g_signal_connect(service, "incoming", G_CALLBACK(on_incoming), NULL);
  return g_socket_listener_add_address(G_SOCKET_LISTENER(service), address, G_SOCKET_TYPE_STREAM,
                                       G_SOCKET_PROTOCOL_DEFAULT, NULL, NULL, error);
}

const char *gate_path(void) {
  return path;
}

void gate_close(void) {
  g_socket_service_stop(service);
  g_clear_object(&service);
  g_clear_pointer(&stop_lines, g_hash_table_unref);
  g_clear_pointer(&paused, g_hash_table_unref);
  g_clear_pointer(&path, g_free);
}

static line *take_paused(request *asked) {
  const char *id = json_string(asked->params, "requestId", "");
  line *waiting = g_hash_table_lookup(paused, id);
  if (waiting)
    g_hash_table_remove(paused, id);
  else
    answer_error(asked, "Invalid InterceptionId.");
  return waiting;
}

void gate_continue(page *of, request *asked) {
  (void)of;
  line *waiting = take_paused(asked);
  if (!waiting)
    return;
  let_go(waiting, FALSE, json_array(asked->params, "headers"));
  answer_empty(asked);
}

/* A document that is refused fails with words of its own, which only WebKit's main process would have. */
static void mark_if_document(page *of, const line *waiting) {
  g_autoptr(JsonObject) question = json_parse_object(waiting->question, waiting->question_bytes);
  if (json_flag(question, "isDocument", FALSE))
    of->navigation.was_blocked = TRUE;
}

void gate_fail(page *of, request *asked) {
  line *waiting = take_paused(asked);
  if (!waiting)
    return;
  mark_if_document(of, waiting);
  let_go(waiting, TRUE, NULL);
  answer_empty(asked);
}

/* The id of the process as it is outside of the sandbox is the kernel's to tell. */
gboolean gate_kill_process(const page *of) {
  const line *stop = g_hash_table_lookup(stop_lines, &of->process);
  g_autoptr(GCredentials) peer =
      stop ? g_socket_get_credentials(g_socket_connection_get_socket(stop->connection), NULL) : NULL;
  const pid_t process = peer ? g_credentials_get_unix_pid(peer, NULL) : -1;
  return process > 1 && kill(process, SIGKILL) == 0;
}

gboolean gate_stop(const page *of) {
  const line *stop = g_hash_table_lookup(stop_lines, &of->process);
  GOutputStream *out = stop ? g_io_stream_get_output_stream(G_IO_STREAM(stop->connection)) : NULL;
  const char stop_byte = 1;
  /* One byte into an empty socket does not block. */
  return out && g_output_stream_write(out, &stop_byte, 1, NULL, NULL) == 1;
}

void gate_stop_script(page *of, request *asked) {
  if (gate_stop(of))
    answer_empty(asked);
  else
    answer_error(asked, "the page's process cannot be reached");
}
