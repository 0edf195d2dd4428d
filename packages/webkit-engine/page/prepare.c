/* What is put into each new document before the page's own script runs. */
#include <string.h>

#include "page.h"

#define PREPARED_MAX 100u

/* WebKit has no Navigation API yet; the worlds of the tool get the part of it that tells of an address. */
static const char navigation_part[] =
    "globalThis.navigation ?? Object.defineProperty(globalThis, 'navigation', {value: new EventTarget()})";

static prepared_script *make_prepared(const char *world_name, const char *source) {
  prepared_script *made = g_new0(prepared_script, 1);
  made->world_name = g_strdup(world_name);
  made->source = g_strdup(source);
  return made;
}

static void free_prepared(GPtrArray *list) {
  for (guint index = 0; index < list->len; index++) {
    prepared_script *each = g_ptr_array_index(list, index);
    g_free(each->world_name);
    g_free(each->source);
    g_free(each);
  }
  g_ptr_array_unref(list);
}

void prepare_free(web_page *of) {
  free_prepared(of->scripts);
  free_prepared(of->bindings);
}

typedef struct binding {
  char *name;
  guint64 document;
  char *world_name;
} binding;

static void free_binding(gpointer data) {
  binding *of = data;
  g_free(of->name);
  g_free(of->world_name);
  g_free(of);
}

static void on_binding_called(const char *payload, gpointer data) {
  const binding *of = data;
  frame *in = frame_of_document(of->document);
  if (!in)
    return;
  world *from = *of->world_name ? world_named(of->world_name) : world_own();
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "name", of->name);
  json_add_string(params, "payload", payload);
  json_add_int(params, "executionContextId", context_of(in, from)->id);
  json_end_object(params);
  page_event(in->of, "Runtime.bindingCalled", params->str);
}

static void bind(frame *of, world *in, const char *name) {
  binding *made = g_new0(binding, 1);
  made->name = g_strdup(name);
  made->document = of->document;
  made->world_name = g_strdup(in->name);
  JSCContext *script = context_of(of, in)->script;
  g_autoptr(JSCValue) function = jsc_value_new_function(script, name, G_CALLBACK(on_binding_called), made,
                                                        free_binding, G_TYPE_NONE, 1, G_TYPE_STRING);
  jsc_context_set_value(script, name, function);
}

void prepare_document(frame *of, world *in) {
  const gboolean is_own = in == world_own();
  if (!is_own) {
    g_autoptr(JSCValue) made = jsc_context_evaluate(context_of(of, in)->script, navigation_part, -1);
  }
  for (guint index = 0; index < of->of->bindings->len; index++) {
    const prepared_script *each = g_ptr_array_index(of->of->bindings, index);
    if (strcmp(each->world_name, in->name) == 0)
      bind(of, in, each->source);
  }
  for (guint index = 0; index < of->of->scripts->len; index++) {
    const prepared_script *each = g_ptr_array_index(of->of->scripts, index);
    if (strcmp(each->world_name, in->name) != 0)
      continue;
    JSCContext *script = context_of(of, in)->script;
    g_autoptr(JSCValue) nothing = jsc_context_evaluate(script, each->source, -1);
    jsc_context_clear_exception(script);
  }
}

static gboolean keep(GPtrArray *list, const char *world_name, const char *source, WebKitUserMessage *message) {
  if (list->len >= PREPARED_MAX) {
    reply_error(message, CODE_SERVER_ERROR, "too many scripts or bindings");
    return FALSE;
  }
  /* The world has to be there to be told of new documents. */
  if (*world_name)
    world_named(world_name);
  g_ptr_array_add(list, make_prepared(world_name, source));
  return TRUE;
}

void prepare_add_script(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  const char *world_name = json_string(params, "worldName", "");
  if (keep(of->scripts, world_name, json_string(params, "source", ""), message))
    reply_result(message, "{\"identifier\":\"1\"}");
}

void prepare_add_binding(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  const char *world_name = json_string(params, "executionContextName", "");
  const char *name = json_string(params, "name", "");
  if (!keep(of->bindings, world_name, name, message))
    return;
  for (guint index = 0; index < of->frames->len; index++)
    bind(g_ptr_array_index(of->frames, index), *world_name ? world_named(world_name) : world_own(), name);
  reply_result(message, "{}");
}

/* Says what the Navigation API would: somebody wanted to go there, and that has been prevented. */
void prepare_refused(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  g_autoptr(GString) url = g_string_new(NULL);
  json_add_string(url, NULL, json_string(params, "url", ""));
  g_autofree char *tell = g_strdup_printf(
      "{const event = new Event('navigate', {cancelable: true});"
      "Object.defineProperty(event, 'destination', {value: {url: %s}});"
      "globalThis.navigation?.dispatchEvent(event)}",
      url->str);
  frame *in = frame_main(of);
  for (guint index = 0; index < in->contexts->len; index++) {
    context *each = g_ptr_array_index(in->contexts, index);
    if (each->in == world_own())
      continue;
    g_autoptr(JSCContext) script = g_object_ref(each->script);
    g_autoptr(JSCValue) told = jsc_context_evaluate(script, tell, -1);
    jsc_context_clear_exception(script);
  }
  reply_result(message, "{}");
}
