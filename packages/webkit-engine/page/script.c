/* Runtime: script in a document's world, what came of it, and what it throws. */
#include <string.h>

#include "page.h"

#define ARGUMENTS_MAX 1000u
/* Answers that wait for a promise. */
#define PENDING_MAX 10000u
#define WORDS_FOR_NO_CONTEXT "Cannot find context with specified id"
#define WORDS_FOR_NO_OBJECT "Could not find object with given id"
#define WORDS_FOR_GONE "Execution context was destroyed."

typedef struct pending {
  WebKitUserMessage *message;
  context *of;
  const frame *in;
  gboolean by_value;
} pending;

static GHashTable *waiting;
static guint waits_begun;

static void free_pending(gpointer data) {
  pending *of = data;
  g_object_unref(of->message);
  g_free(of);
}

typedef struct place {
  const char *url;
  guint line;
  guint column;
} place;

/* Script that was never run has no stack. */
static void add_exception(GString *out, const char *remote, const char *text, const place *at, gboolean has_run) {
  json_begin_object(out, "exceptionDetails");
  json_add_int(out, "exceptionId", 1);
  json_add_string(out, "text", text);
  json_add_int(out, "lineNumber", at->line > 0 ? at->line - 1 : 0);
  json_add_int(out, "columnNumber", at->column > 0 ? at->column - 1 : 0);
  json_add_string(out, "url", at->url);
  json_add_raw(out, "exception", remote);
  if (has_run)
    json_add_raw(out, "stackTrace", "{\"callFrames\":[]}");
  json_end_object(out);
}

static void reply_thrown(const pending *of, JSCValue *thrown, const char *text) {
  g_autofree char *remote = remote_object(of->of, thrown, FALSE, FALSE);
  const char *shown = remote ? remote : "{\"type\":\"object\",\"description\":\"Error\"}";
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_raw(result, "result", shown);
  add_exception(result, shown, text, &(place){"", 0, 0}, TRUE);
  json_end_object(result);
  reply_result(of->message, result->str);
}

static void reply_value(const pending *of, JSCValue *value) {
  g_autofree char *remote = remote_object(of->of, value, of->by_value, FALSE);
  if (!remote) {
    reply_error(of->message, CODE_SERVER_ERROR, "Object couldn't be returned by value");
    return;
  }
  g_autoptr(GString) result = g_string_sized_new(strlen(remote) + 16);
  json_begin_object(result, NULL);
  json_add_raw(result, "result", remote);
  json_end_object(result);
  reply_result(of->message, result->str);
}

/* Script that could not be compiled, or threw outside of a function. */
static void reply_exception(const pending *of, JSCException *exception, gboolean has_run) {
  const char *name = jsc_exception_get_name(exception);
  const char *message = jsc_exception_get_message(exception);
  g_autofree char *description = NULL;
  if (name && *name)
    description = g_strdup_printf("%s: %s", name, message ? message : "");
  else
    description = g_strdup(message && *message ? message : "Error: the script was stopped");
  g_autoptr(GString) remote = g_string_new(NULL);
  json_begin_object(remote, NULL);
  json_add_string(remote, "type", "object");
  json_add_string(remote, "subtype", "error");
  json_add_string(remote, "className", name);
  json_add_string(remote, "description", description);
  json_end_object(remote);
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_raw(result, "result", remote->str);
  const place at = {jsc_exception_get_source_uri(exception), jsc_exception_get_line_number(exception),
                    jsc_exception_get_column_number(exception)};
  add_exception(result, remote->str, "Uncaught", &at, has_run);
  json_end_object(result);
  reply_result(of->message, result->str);
}

static guint keep_waiting(const pending *of) {
  if (!waiting)
    waiting = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_pending);
  if (g_hash_table_size(waiting) >= PENDING_MAX)
    return 0;
  pending *kept = g_memdup2(of, sizeof *of);
  g_object_ref(kept->message);
  g_hash_table_insert(waiting, GUINT_TO_POINTER(++waits_begun), kept);
  return waits_begun;
}

void script_settled(double id, gboolean is_kept, JSCValue *value, gpointer data) {
  (void)data;
  gpointer key = GUINT_TO_POINTER((guint)id);
  pending *of = waiting ? g_hash_table_lookup(waiting, key) : NULL;
  if (!of)
    return;
  g_hash_table_steal(waiting, key);
  if (!of->of)
    reply_result(of->message, "{}");
  else if (is_kept)
    reply_value(of, value);
  else
    reply_thrown(of, value, "Uncaught (in promise)");
  free_pending(of);
}

static gboolean is_in_frame(gpointer id, gpointer data, gpointer in) {
  (void)id;
  const pending *of = data;
  if (of->in != in)
    return FALSE;
  reply_error(of->message, CODE_SERVER_ERROR, WORDS_FOR_GONE);
  return TRUE;
}

void script_drop_frame(const frame *of) {
  if (waiting)
    g_hash_table_foreach_remove(waiting, is_in_frame, (gpointer)of);
}

/* Replies now, or when the promise is settled. */
static void reply_when_settled(const pending *of, JSCValue *value, gboolean awaits) {
  frame *in = of->of->of;
  g_autoptr(JSCValue) thenable = awaits ? helper_call(in, "isThenable", g_object_ref(value), NULL) : NULL;
  if (!thenable || !jsc_value_to_boolean(thenable)) {
    reply_value(of, value);
    return;
  }
  const guint id = keep_waiting(of);
  if (id == 0) {
    reply_error(of->message, CODE_SERVER_ERROR, "too many promises are awaited");
    return;
  }
  g_autoptr(JSCValue) begun =
      helper_call(in, "settle", g_object_ref(value), jsc_value_new_number(in->helper_context, id), NULL);
}

/* TRUE when the script threw, and the reply has been sent. */
static gboolean has_thrown(const pending *of, const char *source) {
  JSCContext *script = of->of->script;
  g_autoptr(JSCException) exception = jsc_context_get_exception(script);
  if (!exception)
    return FALSE;
  g_object_ref(exception);
  jsc_context_clear_exception(script);
  g_autoptr(JSCException) unreadable = NULL;
  const JSCCheckSyntaxResult syntax =
      jsc_context_check_syntax(script, source, -1, JSC_CHECK_SYNTAX_MODE_SCRIPT, "", 1, &unreadable);
  reply_exception(of, exception, syntax == JSC_CHECK_SYNTAX_RESULT_SUCCESS);
  return TRUE;
}

static context *wanted_context(web_page *of, JsonObject *params, const char *member) {
  return json_object_has_member(params, member) ? context_with_id(json_integer(params, member, 0))
                                                : context_of(frame_main(of), world_own());
}

void script_evaluate(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  context *in = wanted_context(of, params, "contextId");
  if (!in) {
    reply_error(message, CODE_SERVER_ERROR, WORDS_FOR_NO_CONTEXT);
    return;
  }
  const pending asked = {message, in, in->of, json_flag(params, "returnByValue", FALSE)};
  const gint64 id = in->id;
  const char *source = json_string(params, "expression", "");
  g_autoptr(JSCValue) value = jsc_context_evaluate(in->script, source, -1);
  /* The script may have sent its own document away. */
  if (context_with_id(id) != in)
    reply_error(message, CODE_SERVER_ERROR, WORDS_FOR_GONE);
  else if (!has_thrown(&asked, source))
    reply_when_settled(&asked, value, json_flag(params, "awaitPromise", FALSE));
}

static JSCValue *argument_of(JsonNode *node, context *of) {
  JsonObject *given = JSON_NODE_HOLDS_OBJECT(node) ? json_node_get_object(node) : NULL;
  const char *id = json_string(given, "objectId", NULL);
  if (id)
    return object_with_id(id, NULL);
  const char *special = json_string(given, "unserializableValue", NULL);
  if (special)
    return jsc_context_evaluate(of->script, special, -1);
  JsonNode *value = given ? json_object_get_member(given, "value") : NULL;
  if (!value)
    return jsc_value_new_undefined(of->script);
  g_autofree char *json = json_to_string(value, FALSE);
  return jsc_value_new_from_json(of->script, json);
}

/* An array of the arguments, or NULL when one of them is an object that is gone. */
static JSCValue *arguments_of(JsonArray *given, context *of) {
  g_autoptr(GPtrArray) values = g_ptr_array_new_with_free_func(g_object_unref);
  const guint count = given ? json_array_get_length(given) : 0;
  if (count > ARGUMENTS_MAX)
    return NULL;
  for (guint index = 0; index < count; index++) {
    JSCValue *value = argument_of(json_array_get_element(given, index), of);
    if (!value)
      return NULL;
    g_ptr_array_add(values, value);
  }
  return jsc_value_new_array_from_garray(of->script, values->len > 0 ? values : NULL);
}

static void call_function_on(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  const char *object_id = json_string(params, "objectId", NULL);
  context *in = NULL;
  g_autoptr(JSCValue) self = NULL;
  if (object_id)
    self = object_with_id(object_id, &in);
  else if ((in = wanted_context(of, params, "executionContextId")))
    self = jsc_value_new_undefined(in->script);
  if (!self) {
    reply_error(message, CODE_SERVER_ERROR, object_id ? WORDS_FOR_NO_OBJECT : WORDS_FOR_NO_CONTEXT);
    return;
  }
  const pending asked = {message, in, in->of, json_flag(params, "returnByValue", FALSE)};
  g_autofree char *source = g_strdup_printf("(%s)", json_string(params, "functionDeclaration", ""));
  g_autoptr(JSCValue) callee = jsc_context_evaluate(in->script, source, -1);
  if (has_thrown(&asked, source))
    return;
  g_autoptr(JSCValue) arguments = arguments_of(json_array(params, "arguments"), in);
  if (!arguments || !jsc_value_is_function(callee)) {
    reply_error(message, CODE_SERVER_ERROR,
                arguments ? "Given expression does not evaluate to a function" : WORDS_FOR_NO_OBJECT);
    return;
  }
  const gint64 id = in->id;
  g_autoptr(JSCValue) outcome = helper_call(in->of, "call", g_object_ref(callee), g_object_ref(self),
                                            g_object_ref(arguments), NULL);
  if (!outcome || context_with_id(id) != in) {
    reply_error(message, CODE_SERVER_ERROR, WORDS_FOR_GONE);
    return;
  }
  g_autoptr(JSCValue) is_kept = jsc_value_object_get_property(outcome, "ok");
  g_autoptr(JSCValue) value = jsc_value_object_get_property(outcome, "value");
  if (jsc_value_to_boolean(is_kept))
    reply_when_settled(&asked, value, json_flag(params, "awaitPromise", FALSE));
  else
    reply_thrown(&asked, value, "Uncaught");
}

typedef struct held_call {
  held_handler handler;
  JsonObject *params;
  WebKitUserMessage *message;
} held_call;

/*
 * Some things WebKit does only for a person. Its main process can make it believe in one, for script that it runs
 * itself in the main frame; so what needs that is held until such script comes.
 */
void script_hold(web_page *of, held_handler handler, JsonObject *params, WebKitUserMessage *message) {
  held_call *held = g_new0(held_call, 1);
  held->handler = handler;
  held->params = json_object_ref(params);
  held->message = g_object_ref(message);
  g_queue_push_tail(&of->held_calls, held);
  frame_helper(frame_main(of));
  page_event(of, "Engine.gesture", "{}");
}

/* In a frame of another site, elements take the focus only when a person has done something there. */
void script_call_function_on(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  context *in = NULL;
  g_autoptr(JSCValue) self = object_with_id(json_string(params, "objectId", NULL), &in);
  if (!in || in->of->is_main)
    call_function_on(of, params, message);
  else
    script_hold(of, call_function_on, params, message);
}

static void free_held(held_call *held) {
  json_object_unref(held->params);
  g_object_unref(held->message);
  g_free(held);
}

void script_run_held(gpointer source) {
  web_page *of = page_of_source(source);
  held_call *held;
  while (of && (held = g_queue_pop_head(&of->held_calls))) {
    held->handler(of, held->params, held->message);
    free_held(held);
    of = page_of_source(source);
  }
}

void script_drop_held(web_page *of) {
  held_call *held;
  while ((held = g_queue_pop_head(&of->held_calls))) {
    reply_error(held->message, CODE_SERVER_ERROR, WORDS_FOR_GONE);
    free_held(held);
  }
}

void script_run_held_anyway(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)params;
  reply_result(message, "{}");
  script_run_held(of->source);
}

void script_get_properties(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of;
  context *in = NULL;
  g_autoptr(JSCValue) object = object_with_id(json_string(params, "objectId", NULL), &in);
  g_autoptr(JSCValue) list = object ? helper_call(in->of, "properties", g_object_ref(object), NULL) : NULL;
  if (!list) {
    reply_error(message, CODE_SERVER_ERROR, WORDS_FOR_NO_OBJECT);
    return;
  }
  g_autoptr(JSCValue) length = jsc_value_object_get_property(list, "length");
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_begin_array(result, "result");
  for (guint index = 0; index < (guint)jsc_value_to_int32(length); index++) {
    g_autoptr(JSCValue) entry = jsc_value_object_get_property_at_index(list, index);
    g_autoptr(JSCValue) name = jsc_value_object_get_property(entry, "name");
    g_autoptr(JSCValue) value = jsc_value_object_get_property(entry, "value");
    g_autofree char *name_text = jsc_value_to_string(name);
    g_autofree char *remote = remote_object(in, value, FALSE, FALSE);
    json_begin_object(result, NULL);
    json_add_string(result, "name", name_text);
    if (remote)
      json_add_raw(result, "value", remote);
    json_add_bool(result, "isOwn", TRUE);
    json_end_object(result);
  }
  json_end_array(result);
  json_end_object(result);
  reply_result(message, result->str);
}

void script_release_object(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of;
  object_release(json_string(params, "objectId", NULL));
  reply_result(message, "{}");
}

void script_next_frame(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)params;
  frame *in = frame_main(of);
  const pending asked = {message, NULL, in, FALSE};
  const guint id = frame_helper(in) ? keep_waiting(&asked) : 0;
  if (id == 0) {
    reply_result(message, "{}");
    return;
  }
  g_autoptr(JSCValue) begun = helper_call(in, "nextFrame", jsc_value_new_number(in->helper_context, id), NULL);
}
