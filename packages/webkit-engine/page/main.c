#include <string.h>

#include "line.h"
#include "page.h"

#define HELD_EVENTS_MAX 1000u
/* Below everything that WebKit itself puts in line. */
#define PRIORITY_AFTER_ALL G_PRIORITY_LOW
/* A page that always has something to do gets no quieter than this. */
#define IDLE_WAIT_MS_MAX 50u

typedef void (*command_handler)(web_page *of, JsonObject *params, WebKitUserMessage *message);

typedef struct held_event {
  char *method;
  char *params;
} held_event;

static GPtrArray *pages;

web_page *page_of_source(WebKitWebPage *source) {
  for (guint index = 0; index < pages->len; index++) {
    web_page *each = g_ptr_array_index(pages, index);
    if (each->source == source)
      return each;
  }
  return NULL;
}

static void send_event(web_page *of, const char *method, const char *params) {
  WebKitUserMessage *message = webkit_user_message_new(method, g_variant_new_string(params));
  webkit_web_page_send_message_to_view(of->source, message, NULL, NULL, NULL);
}

void page_event(web_page *of, const char *method, const char *params) {
  if (of->target) {
    send_event(of, method, params);
    return;
  }
  if (g_queue_get_length(&of->held_events) >= HELD_EVENTS_MAX)
    return;
  held_event *held = g_new0(held_event, 1);
  held->method = g_strdup(method);
  held->params = g_strdup(params);
  g_queue_push_tail(&of->held_events, held);
}

static void reply(WebKitUserMessage *to, int code, const char *text) {
  if (!to)
    return;
  g_autofree char *valid = g_utf8_validate(text, -1, NULL) ? NULL : g_utf8_make_valid(text, -1);
  GVariant *content = g_variant_new("(is)", code, valid ? valid : text);
  webkit_user_message_send_reply(to, webkit_user_message_new("reply", content));
}

void reply_result(WebKitUserMessage *to, const char *json) {
  reply(to, 0, json);
}

void reply_error(WebKitUserMessage *to, int code, const char *text) {
  reply(to, code, text);
}

/* The page's name, in which its events speak of it. */
static void hello(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  g_free(of->target);
  of->target = g_strdup(json_string(params, "targetId", ""));
  held_event *held;
  while ((held = g_queue_pop_head(&of->held_events))) {
    send_event(of, held->method, held->params);
    g_free(held->method);
    g_free(held->params);
    g_free(held);
  }
  reply_result(message, "{}");
}

static void ping(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of, (void)params;
  reply_result(message, "{}");
}

typedef struct idle_wait {
  WebKitUserMessage *message;
  guint soon;
  guint at_last;
} idle_wait;

static gboolean end_wait(idle_wait *of, guint other) {
  g_source_remove(other);
  reply_result(of->message, "{}");
  g_object_unref(of->message);
  g_free(of);
  return G_SOURCE_REMOVE;
}

static gboolean on_idle(gpointer data) {
  idle_wait *of = data;
  return end_wait(of, of->at_last);
}

static gboolean on_never_idle(gpointer data) {
  idle_wait *of = data;
  return end_wait(of, of->soon);
}

/* Answers once nothing is left in line that was there now: timers without delay, the start of a navigation. */
static void idle(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of, (void)params;
  idle_wait *made = g_new0(idle_wait, 1);
  made->message = g_object_ref(message);
  made->soon = g_timeout_add_full(PRIORITY_AFTER_ALL, 0, on_idle, made, NULL);
  made->at_last = g_timeout_add_full(G_PRIORITY_HIGH, IDLE_WAIT_MS_MAX, on_never_idle, made, NULL);
}

static void create_isolated_world(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  frame *in = frame_named(of, json_string(params, "frameId", NULL));
  const char *name = json_string(params, "worldName", "");
  if (!in) {
    reply_error(message, CODE_SERVER_ERROR, "No frame for given id found");
    return;
  }
  context *made = context_of(in, world_named(*name ? name : "isolated"));
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_int(result, "executionContextId", made->id);
  json_end_object(result);
  reply_result(message, result->str);
}

static void enable_runtime(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)params;
  for (guint index = 0; index < of->frames->len; index++) {
    const frame *each = g_ptr_array_index(of->frames, index);
    for (guint inner = 0; inner < each->contexts->len; inner++)
      announce_context(g_ptr_array_index(each->contexts, inner));
  }
  reply_result(message, "{}");
}

static void layout_metrics(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)params;
  g_autofree char *metrics = helper_text(frame_main(of), "metrics", NULL);
  if (metrics)
    reply_result(message, metrics);
  else
    reply_error(message, CODE_SERVER_ERROR, "the page has no document");
}

static void scroll_to(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  frame *in = frame_main(of);
  g_autofree char *metrics = NULL;
  if (frame_helper(in))
    metrics = helper_text(in, "scrollTo", jsc_value_new_number(in->helper_context, json_number(params, "x", 0)),
                          jsc_value_new_number(in->helper_context, json_number(params, "y", 0)), NULL);
  if (metrics)
    reply_result(message, metrics);
  else
    reply_error(message, CODE_SERVER_ERROR, "the page has no document");
}

static const struct {
  const char *method;
  command_handler handler;
} commands[] = {
    {"DOM.describeNode", dom_describe_node},
    {"DOM.getFrameOwner", dom_get_frame_owner},
    {"DOM.resolveNode", dom_resolve_node},
    {"Engine.fileField", dom_file_field},
    {"Engine.hello", hello},
    {"Engine.idle", idle},
    {"Engine.nextFrame", script_next_frame},
    {"Engine.openChooser", dom_open_chooser},
    {"Engine.ping", ping},
    {"Engine.refused", prepare_refused},
    {"Engine.runHeld", script_run_held_anyway},
    {"Engine.scrollTo", scroll_to},
    {"Fetch.enable", requests_enable},
    {"Page.addScriptToEvaluateOnNewDocument", prepare_add_script},
    {"Page.createIsolatedWorld", create_isolated_world},
    {"Page.getLayoutMetrics", layout_metrics},
    {"Runtime.addBinding", prepare_add_binding},
    {"Runtime.callFunctionOn", script_call_function_on},
    {"Runtime.enable", enable_runtime},
    {"Runtime.evaluate", script_evaluate},
    {"Runtime.getProperties", script_get_properties},
    {"Runtime.releaseObject", script_release_object},
};

static gboolean run_command(web_page *of, const char *method, JsonObject *params, WebKitUserMessage *message) {
  for (gsize index = 0; index < G_N_ELEMENTS(commands); index++) {
    if (strcmp(commands[index].method, method) == 0) {
      commands[index].handler(of, params, message);
      return TRUE;
    }
  }
  return FALSE;
}

/* What has been prepared for the page, should it have been in another process before. */
static void take_over(web_page *of) {
  g_autoptr(GString) question = g_string_new(NULL);
  json_begin_object(question, NULL);
  json_add_int(question, "created", (gint64)webkit_web_page_get_id(of->source));
  json_end_object(question);
  g_autoptr(JsonObject) told = requests_ask(question);
  JsonArray *prepared = json_array(told, "commands");
  if (prepared && json_array_get_length(prepared) > 0)
    of->target = g_strdup(json_string(told, "targetId", ""));
  for (guint index = 0; prepared && index < json_array_get_length(prepared); index++) {
    JsonObject *each = json_array_get_object_element(prepared, index);
    JsonObject *params = json_object(each, "params");
    if (params)
      run_command(of, json_string(each, "method", ""), params, NULL);
  }
}

static gboolean on_message(WebKitWebPage *source, WebKitUserMessage *message, gpointer data) {
  (void)source;
  const char *method = webkit_user_message_get_name(message);
  stop_forget();
  GVariant *content = webkit_user_message_get_parameters(message);
  const char *text = content && g_variant_is_of_type(content, G_VARIANT_TYPE_STRING)
                         ? g_variant_get_string(content, NULL)
                         : "{}";
  g_autoptr(JsonObject) params = json_parse_object(text, -1);
  if (!params || !run_command(data, method, params, message))
    reply_error(message, CODE_METHOD_NOT_FOUND, method);
  return TRUE;
}

static void on_document_loaded(WebKitWebPage *source, gpointer data) {
  (void)source;
  page_event(data, "Engine.documentLoaded", "{}");
}

void page_stepped(const char *uri, gpointer source) {
  web_page *of = page_of_source(source);
  if (!of)
    return;
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "frameId", of->target);
  json_add_string(params, "url", uri);
  json_end_object(params);
  page_event(of, "Page.navigatedWithinDocument", params->str);
}

/* While a document is on its way, the page has its address and the document that is there another one. */
static void on_uri_changed(WebKitWebPage *source, GParamSpec *property, gpointer data) {
  (void)property;
  const char *uri = webkit_web_page_get_uri(source);
  g_autofree char *there = helper_text(frame_main(data), "address", NULL);
  if (g_strcmp0(uri, there) == 0)
    page_stepped(uri, source);
}

static void on_page_gone(gpointer data, GObject *source) {
  (void)source;
  web_page *of = data;
  g_ptr_array_remove(pages, of);
}

static void free_page(gpointer data) {
  web_page *of = data;
  script_drop_held(of);
  frames_free(of);
  prepare_free(of);
  g_ptr_array_unref(of->suspect_patterns);
  g_free(of->target);
  g_free(of);
}

static void on_page_created(WebKitWebExtension *extension, WebKitWebPage *source, gpointer data) {
  (void)extension, (void)data;
  web_page *made = g_new0(web_page, 1);
  made->source = source;
  made->frames = g_ptr_array_new();
  made->scripts = g_ptr_array_new();
  made->bindings = g_ptr_array_new();
  made->suspect_patterns = g_ptr_array_new_with_free_func((GDestroyNotify)g_pattern_spec_free);
  g_ptr_array_add(pages, made);
  g_object_weak_ref(G_OBJECT(source), on_page_gone, made);
  g_signal_connect(source, "user-message-received", G_CALLBACK(on_message), made);
  g_signal_connect(source, "document-loaded", G_CALLBACK(on_document_loaded), made);
  g_signal_connect(source, "notify::uri", G_CALLBACK(on_uri_changed), made);
  console_watch_page(made);
  requests_watch(made);
  take_over(made);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_int(params, "process", line_process());
  json_end_object(params);
  send_event(made, "Engine.created", params->str);
}

G_MODULE_EXPORT void webkit_web_extension_initialize_with_user_data(WebKitWebExtension *extension,
                                                                    GVariant *data) {
  const char *gate = g_variant_get_string(data, NULL);
  pages = g_ptr_array_new_with_free_func(free_page);
  worlds_start();
  requests_start(gate);
  stop_start(gate);
  g_signal_connect(extension, "page-created", G_CALLBACK(on_page_created), NULL);
}
