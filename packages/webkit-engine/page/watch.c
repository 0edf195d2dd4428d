/* The other end of watch.js: what pages do that WebKit itself tells nobody. */
#include <string.h>

#include "embed.h"
#include "line.h"
#include "page.h"

EMBED_TEXT(watch_source, PAGE_FOLDER "/watch.js");

static guint sockets_opened;

static double now_s(void) {
  return (double)g_get_monotonic_time() / G_TIME_SPAN_SECOND;
}

static void begin_socket_event(GString *params, double id) {
  json_begin_object(params, NULL);
  g_autofree char *name = g_strdup_printf("%" G_GINT64_FORMAT ".ws.%.0f", line_process(), id);
  json_add_string(params, "requestId", name);
  json_add_double(params, "timestamp", now_s());
}

static double on_socket_opened(const char *uri, gpointer document) {
  const double id = ++sockets_opened;
  const frame *in = frame_of_document(GPOINTER_TO_SIZE(document));
  if (!in)
    return id;
  g_autoptr(GString) params = g_string_new(NULL);
  begin_socket_event(params, id);
  json_add_string(params, "url", uri);
  json_end_object(params);
  page_event(in->of, "Network.webSocketCreated", params->str);
  return id;
}

static const char *socket_event(const char *kind) {
  if (strcmp(kind, "sent") == 0)
    return "Network.webSocketFrameSent";
  if (strcmp(kind, "received") == 0)
    return "Network.webSocketFrameReceived";
  return strcmp(kind, "error") == 0 ? "Network.webSocketFrameError" : "Network.webSocketClosed";
}

static void on_socket_frame(double id, const char *kind, int opcode, const char *payload, gpointer document) {
  const frame *in = frame_of_document(GPOINTER_TO_SIZE(document));
  if (!in)
    return;
  g_autoptr(GString) params = g_string_new(NULL);
  begin_socket_event(params, id);
  if (opcode != 0) {
    json_begin_object(params, "response");
    json_add_int(params, "opcode", opcode);
    json_add_bool(params, "mask", strcmp(kind, "sent") == 0);
    json_add_string(params, "payloadData", payload);
    json_end_object(params);
  } else if (strcmp(kind, "error") == 0)
    json_add_string(params, "errorMessage", "the connection failed");
  json_end_object(params);
  page_event(in->of, socket_event(kind), params->str);
}

static gboolean on_may_socket(const char *uri, gpointer document) {
  const frame *in = frame_of_document(GPOINTER_TO_SIZE(document));
  return in && requests_may_go(in->of, uri);
}

static void add_native(JSCValue *native, const char *name, JSCValue *function) {
  jsc_value_object_set_property(native, name, function);
  g_object_unref(function);
}

void watch_frame(frame *of) {
  gpointer document = GSIZE_TO_POINTER(of->document);
  g_autoptr(JSCContext) script = webkit_frame_get_js_context(of->source);
  g_autoptr(JSCValue) watch =
      jsc_context_evaluate_with_source_uri(script, watch_source, -1, "browser-engine:watch", 1);
  g_autoptr(JSCValue) native = jsc_value_new_object(script, NULL, NULL);
  add_native(native, "closedRoot",
             jsc_value_new_function(script, "closedRoot", G_CALLBACK(dom_closed_root), document, NULL,
                                    G_TYPE_NONE, 2, JSC_TYPE_VALUE, JSC_TYPE_VALUE));
  add_native(native, "socketOpened",
             jsc_value_new_function(script, "socketOpened", G_CALLBACK(on_socket_opened), document, NULL,
                                    G_TYPE_DOUBLE, 1, G_TYPE_STRING));
  add_native(native, "socketFrame",
             jsc_value_new_function(script, "socketFrame", G_CALLBACK(on_socket_frame), document, NULL,
                                    G_TYPE_NONE, 4, G_TYPE_DOUBLE, G_TYPE_STRING, G_TYPE_INT, G_TYPE_STRING));
  add_native(native, "maySocket",
             jsc_value_new_function(script, "maySocket", G_CALLBACK(on_may_socket), document, NULL,
                                    G_TYPE_BOOLEAN, 1, G_TYPE_STRING));
  g_autoptr(JSCValue) done = jsc_value_function_call(watch, JSC_TYPE_VALUE, native, G_TYPE_NONE);
  JSCException *failed = jsc_context_get_exception(script);
  if (failed)
    g_warning("watch.js failed: %s", jsc_exception_get_message(failed));
  jsc_context_clear_exception(script);
}
