/* What pages write to the console, and what goes wrong in them. */
#include <string.h>

#include "page.h"

#define ARGUMENTS_MAX 50u

/* The console's functions that write, and the protocol's word for what they write. */
static const struct {
  const char *name;
  const char *type;
} writers[] = {
    {"log", "log"},     {"info", "info"},   {"warn", "warning"}, {"error", "error"}, {"debug", "debug"},
    {"trace", "trace"}, {"dir", "dir"},     {"table", "table"},  {"assert", "assert"},
};

/* WebKit's report of a message has its place but only its first argument; the call that makes it has them all. */
typedef struct running_call {
  const GPtrArray *arguments;
  const char *type;
  frame *in;
} running_call;

static running_call *running;

typedef struct writer {
  guint64 document;
  guint index;
} writer;

static void on_write(GPtrArray *arguments, gpointer data) {
  const writer *by = data;
  frame *in = frame_of_document(by->document);
  if (!in || by->index >= in->console_originals->len)
    return;
  running_call *outer = running;
  running_call now = {arguments, writers[by->index].type, in};
  running = &now;
  g_autoptr(JSCValue) original = g_object_ref(g_ptr_array_index(in->console_originals, by->index));
  g_autoptr(JSCValue) nothing =
      jsc_value_function_callv(original, arguments->len, (JSCValue **)arguments->pdata);
  running = outer;
}

void console_watch_frame(frame *of) {
  g_autoptr(JSCContext) script = webkit_frame_get_js_context(of->source);
  g_autoptr(JSCValue) console = jsc_context_get_value(script, "console");
  if (!jsc_value_is_object(console))
    return;
  for (guint index = 0; index < G_N_ELEMENTS(writers); index++) {
    writer *by = g_new0(writer, 1);
    by->document = of->document;
    by->index = index;
    g_ptr_array_add(of->console_originals, jsc_value_object_get_property(console, writers[index].name));
    g_autoptr(JSCValue) own = jsc_value_new_function_variadic(script, writers[index].name, G_CALLBACK(on_write),
                                                              by, g_free, G_TYPE_NONE);
    jsc_value_object_set_property(console, writers[index].name, own);
  }
}

static double now_ms(void) {
  return (double)g_get_real_time() / G_TIME_SPAN_MILLISECOND;
}

static void add_arguments(GString *out, const running_call *call, const char *text) {
  json_begin_array(out, "args");
  const gboolean is_assert = call && strcmp(call->type, "assert") == 0;
  const guint count = call ? MIN(call->arguments->len, ARGUMENTS_MAX) : 0;
  context *of = call ? context_of(call->in, world_own()) : NULL;
  for (guint index = is_assert ? 1 : 0; index < count; index++) {
    g_autofree char *remote = remote_object(of, g_ptr_array_index(call->arguments, index), FALSE, TRUE);
    if (remote)
      json_add_raw(out, NULL, remote);
  }
  if (!call) {
    json_begin_object(out, NULL);
    json_add_string(out, "type", "string");
    json_add_string(out, "value", text);
    json_end_object(out);
  }
  json_end_array(out);
}

static const char *type_of_level(WebKitConsoleMessageLevel level) {
  switch (level) {
    case WEBKIT_CONSOLE_MESSAGE_LEVEL_INFO:
      return "info";
    case WEBKIT_CONSOLE_MESSAGE_LEVEL_LOG:
      return "log";
    case WEBKIT_CONSOLE_MESSAGE_LEVEL_WARNING:
      return "warning";
    case WEBKIT_CONSOLE_MESSAGE_LEVEL_ERROR:
      return "error";
    case WEBKIT_CONSOLE_MESSAGE_LEVEL_DEBUG:
      return "debug";
  }
  return "log";
}

/* A script that is nothing but one call with plain arguments is run without a place of its own. */
static const char *place_of(const web_page *of, WebKitConsoleMessage *message) {
  const char *place = webkit_console_message_get_source_id(message);
  return place && *place ? place : webkit_web_page_get_uri(of->source);
}

static void report_write(web_page *of, WebKitConsoleMessage *message) {
  const running_call *call = running && running->in->of == of ? running : NULL;
  const guint line = webkit_console_message_get_line(message);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "type", call ? call->type : type_of_level(webkit_console_message_get_level(message)));
  add_arguments(params, call, webkit_console_message_get_text(message));
  json_add_int(params, "executionContextId", 0);
  json_add_double(params, "timestamp", now_ms());
  json_begin_object(params, "stackTrace");
  json_begin_array(params, "callFrames");
  json_begin_object(params, NULL);
  json_add_string(params, "functionName", "");
  json_add_string(params, "scriptId", "");
  json_add_string(params, "url", place_of(of, message));
  json_add_int(params, "lineNumber", line > 0 ? (gint64)line - 1 : 0);
  json_add_int(params, "columnNumber", 0);
  json_end_object(params);
  json_end_array(params);
  json_end_object(params);
  json_end_object(params);
  page_event(of, "Runtime.consoleAPICalled", params->str);
}

static void report_exception(web_page *of, WebKitConsoleMessage *message) {
  const guint line = webkit_console_message_get_line(message);
  const char *text = webkit_console_message_get_text(message);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_double(params, "timestamp", now_ms());
  json_begin_object(params, "exceptionDetails");
  json_add_int(params, "exceptionId", 1);
  json_add_string(params, "text", "Uncaught");
  json_add_int(params, "lineNumber", line > 0 ? (gint64)line - 1 : 0);
  json_add_int(params, "columnNumber", 0);
  json_add_string(params, "url", webkit_console_message_get_source_id(message));
  json_begin_object(params, "exception");
  json_add_string(params, "type", "object");
  json_add_string(params, "subtype", "error");
  json_add_string(params, "description", text);
  json_end_object(params);
  json_end_object(params);
  json_end_object(params);
  page_event(of, "Runtime.exceptionThrown", params->str);
}

static const char *log_source(WebKitConsoleMessageSource source) {
  switch (source) {
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_JAVASCRIPT:
      return "javascript";
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_NETWORK:
      return "network";
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_SECURITY:
      return "security";
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_CONSOLE_API:
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_OTHER:
      break;
  }
  return "other";
}

static void report_entry(web_page *of, WebKitConsoleMessage *message) {
  const char *type = type_of_level(webkit_console_message_get_level(message));
  const gboolean is_debug = strcmp(type, "debug") == 0;
  const guint line = webkit_console_message_get_line(message);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_begin_object(params, "entry");
  json_add_string(params, "source", log_source(webkit_console_message_get_source(message)));
  json_add_string(params, "level", is_debug ? "verbose" : strcmp(type, "log") == 0 ? "info" : type);
  json_add_string(params, "text", webkit_console_message_get_text(message));
  json_add_double(params, "timestamp", now_ms());
  json_add_string(params, "url", webkit_console_message_get_source_id(message));
  if (line > 0)
    json_add_int(params, "lineNumber", (gint64)line - 1);
  json_end_object(params);
  json_end_object(params);
  page_event(of, "Log.entryAdded", params->str);
}

static void on_message(WebKitWebPage *source, WebKitConsoleMessage *message, gpointer data) {
  (void)source;
  switch (webkit_console_message_get_source(message)) {
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_CONSOLE_API:
      report_write(data, message);
      break;
    case WEBKIT_CONSOLE_MESSAGE_SOURCE_JAVASCRIPT:
      if (webkit_console_message_get_level(message) == WEBKIT_CONSOLE_MESSAGE_LEVEL_ERROR) {
        report_exception(data, message);
        break;
      }
      report_entry(data, message);
      break;
    default:
      report_entry(data, message);
  }
}

void console_watch_page(web_page *of) {
  g_signal_connect(of->source, "console-message-sent", G_CALLBACK(on_message), of);
}
