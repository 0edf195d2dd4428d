/* Frames, their documents, and the worlds of script in them. */
#include <string.h>

#include "embed.h"
#include "line.h"
#include "page.h"

EMBED_TEXT(helper_source, PAGE_FOLDER "/helper.js");

/* The ids of one process do not repeat those of the one before it. */
#define IDS_PER_PROCESS 1000000000LL
#define NODE_IDS_PER_DOCUMENT 10000000.0

static GHashTable *contexts;
static gint64 contexts_made;
static guint64 documents_begun;
static GHashTable *frames_by_document;

static void free_context(gpointer data) {
  context *of = data;
  g_hash_table_remove(contexts, &of->id);
  objects_drop_context(of);
  g_object_unref(of->script);
  g_free(of);
}

static void drop_document(frame *of) {
  script_drop_frame(of);
  g_ptr_array_set_size(of->contexts, 0);
  g_ptr_array_set_size(of->console_originals, 0);
  g_clear_object(&of->helper);
  g_clear_object(&of->helper_context);
  g_hash_table_remove(frames_by_document, &of->document);
}

static void free_frame(frame *of) {
  drop_document(of);
  g_ptr_array_unref(of->contexts);
  g_ptr_array_unref(of->console_originals);
  g_free(of->name);
  g_free(of);
}

const char *frame_label(const frame *of) {
  return of->is_main ? of->of->target : of->name;
}

static void on_frame_gone(gpointer data, GObject *source) {
  (void)source;
  frame *of = data;
  if (!of->is_main) {
    g_autoptr(GString) params = g_string_new(NULL);
    json_begin_object(params, NULL);
    json_add_string(params, "frameId", of->name);
    json_add_string(params, "reason", "remove");
    json_end_object(params);
    page_event(of->of, "Page.frameDetached", params->str);
  }
  g_ptr_array_remove(of->of->frames, of);
  free_frame(of);
}

void frames_free(web_page *of) {
  for (guint index = 0; index < of->frames->len; index++) {
    frame *each = g_ptr_array_index(of->frames, index);
    g_object_weak_unref(G_OBJECT(each->source), on_frame_gone, each);
    free_frame(each);
  }
  g_ptr_array_unref(of->frames);
}

frame *frame_of_source(web_page *of, WebKitFrame *source) {
  const guint64 id = webkit_frame_get_id(source);
  for (guint index = 0; index < of->frames->len; index++) {
    frame *each = g_ptr_array_index(of->frames, index);
    if (each->id == id)
      return each;
  }
  if (!contexts) {
    contexts = g_hash_table_new(g_int64_hash, g_int64_equal);
    frames_by_document = g_hash_table_new(g_int64_hash, g_int64_equal);
  }
  frame *made = g_new0(frame, 1);
  made->of = of;
  made->source = source;
  made->id = id;
  made->is_main = webkit_frame_is_main_frame(source);
  made->name = g_strdup_printf("%" G_GINT64_FORMAT ".%" G_GUINT64_FORMAT, line_process(), id);
  made->contexts = g_ptr_array_new_with_free_func(free_context);
  made->console_originals = g_ptr_array_new_with_free_func(g_object_unref);
  made->document = ++documents_begun;
  g_hash_table_insert(frames_by_document, &made->document, made);
  g_object_weak_ref(G_OBJECT(source), on_frame_gone, made);
  g_ptr_array_add(of->frames, made);
  return made;
}

frame *frame_main(web_page *of) {
  return frame_of_source(of, webkit_web_page_get_main_frame(of->source));
}

frame *frame_named(web_page *of, const char *name) {
  if (!name || !strchr(name, '.'))
    return frame_main(of);
  for (guint index = 0; index < of->frames->len; index++) {
    frame *each = g_ptr_array_index(of->frames, index);
    if (strcmp(each->name, name) == 0)
      return each;
  }
  return NULL;
}

frame *frame_of_document(guint64 document) {
  return frames_by_document ? g_hash_table_lookup(frames_by_document, &document) : NULL;
}

WebKitDOMElement *frame_owner(frame *inner) {
  JSCValue *helper = frame_helper(inner);
  if (!helper)
    return NULL;
  g_autoptr(JSCValue) document = jsc_context_get_value(inner->helper_context, "document");
  WebKitDOMNode *node = webkit_dom_node_for_js_value(document);
  WebKitDOMDOMWindow *window =
      WEBKIT_DOM_IS_DOCUMENT(node) ? webkit_dom_document_get_default_view(WEBKIT_DOM_DOCUMENT(node)) : NULL;
  return window ? webkit_dom_dom_window_get_frame_element(window) : NULL;
}

static gboolean is_inside(frame *inner, frame *outer) {
  if (inner == outer || !frame_helper(outer))
    return FALSE;
  JSCValue *window = jsc_context_get_global_object(outer->helper_context);
  g_autoptr(JSCValue) answer = helper_call(inner, "isParent", window, NULL);
  return answer && jsc_value_to_boolean(answer);
}

frame *frame_around(frame *inner) {
  for (guint index = 0; index < inner->of->frames->len; index++) {
    frame *each = g_ptr_array_index(inner->of->frames, index);
    if (is_inside(inner, each))
      return each;
  }
  return NULL;
}

JSCValue *node_in_world(frame *of, JSCValue *node, world *in) {
  WebKitDOMNode *known = webkit_dom_node_for_js_value(node);
  if (!known)
    return NULL;
  return webkit_frame_get_js_value_for_dom_object_in_script_world(of->source, WEBKIT_DOM_OBJECT(known),
                                                                  in->script);
}

static JSCValue *make_helper(frame *of, JSCContext *script) {
  g_autoptr(JSCValue) make =
      jsc_context_evaluate_with_source_uri(script, helper_source, -1, "browser-engine:helper", 1);
  g_autoptr(JSCValue) native = jsc_value_new_object(script, NULL, NULL);
  g_autoptr(JSCValue) settled =
      jsc_value_new_function(script, "settled", G_CALLBACK(script_settled), NULL, NULL, G_TYPE_NONE, 3,
                             G_TYPE_DOUBLE, G_TYPE_BOOLEAN, JSC_TYPE_VALUE);
  g_autoptr(JSCValue) frame_of = jsc_value_new_function(script, "frameOf", G_CALLBACK(dom_frame_in), of->of->source, NULL,
                                                        G_TYPE_STRING, 1, JSC_TYPE_VALUE);
  g_autoptr(JSCValue) stepped =
      jsc_value_new_function(script, "stepped", G_CALLBACK(page_stepped), of->of->source, NULL, G_TYPE_NONE, 1,
                             G_TYPE_STRING);
  g_autoptr(JSCValue) file_field =
      jsc_value_new_function(script, "fileField", G_CALLBACK(dom_file_field_clicked), of->of->source, NULL,
                             G_TYPE_NONE, 1, G_TYPE_DOUBLE);
  jsc_value_object_set_property(native, "fileField", file_field);
  jsc_value_object_set_property(native, "stepped", stepped);
  jsc_value_object_set_property(native, "settled", settled);
  jsc_value_object_set_property(native, "frameOf", frame_of);
  if (of->is_main) {
    g_autoptr(JSCValue) run_held = jsc_value_new_function(script, "runHeld", G_CALLBACK(script_run_held),
                                                          of->of->source, NULL, G_TYPE_NONE, 0);
    jsc_context_set_value(script, "runHeld", run_held);
  }
  const double first_node_id = (double)of->document * NODE_IDS_PER_DOCUMENT;
  JSCValue *helper = jsc_value_function_call(make, JSC_TYPE_VALUE, native, G_TYPE_DOUBLE, first_node_id,
                                             G_TYPE_NONE);
  JSCException *failed = jsc_context_get_exception(script);
  if (failed) {
    g_autofree char *report = jsc_exception_report(failed);
    g_warning("the helper failed: %s", report);
    jsc_context_clear_exception(script);
  }
  return helper;
}

JSCValue *frame_helper(frame *of) {
  g_autoptr(JSCContext) now = webkit_frame_get_js_context_for_script_world(of->source, world_private()->script);
  if (!now)
    return NULL;
  if (of->helper_context != now) {
    g_clear_object(&of->helper);
    g_set_object(&of->helper_context, now);
    of->helper = make_helper(of, now);
  }
  return of->helper;
}

static JSCValue *call_helper(frame *of, const char *method, va_list arguments) {
  JSCValue *given[8];
  guint count = 0;
  for (JSCValue *each; (each = va_arg(arguments, JSCValue *)) != NULL;)
    given[count++] = each;
  JSCValue *helper = frame_helper(of);
  JSCValue *result = helper ? jsc_value_object_invoke_methodv(helper, method, count, given) : NULL;
  for (guint index = 0; index < count; index++)
    g_object_unref(given[index]);
  if (of->helper_context && jsc_context_get_exception(of->helper_context)) {
    jsc_context_clear_exception(of->helper_context);
    g_clear_object(&result);
  }
  return result;
}

JSCValue *helper_call(frame *of, const char *method, ...) {
  va_list arguments;
  va_start(arguments, method);
  JSCValue *result = call_helper(of, method, arguments);
  va_end(arguments);
  return result;
}

char *helper_text(frame *of, const char *method, ...) {
  va_list arguments;
  va_start(arguments, method);
  g_autoptr(JSCValue) result = call_helper(of, method, arguments);
  va_end(arguments);
  return result && jsc_value_is_string(result) ? jsc_value_to_string(result) : NULL;
}

void announce_context(const context *of) {
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_begin_object(params, "context");
  json_add_int(params, "id", of->id);
  json_add_string(params, "origin", webkit_frame_get_uri(of->of->source));
  json_add_string(params, "name", of->in->name);
  json_begin_object(params, "auxData");
  json_add_bool(params, "isDefault", of->in == world_own());
  json_add_string(params, "frameId", frame_label(of->of));
  json_end_object(params);
  json_end_object(params);
  json_end_object(params);
  page_event(of->of->of, "Runtime.executionContextCreated", params->str);
}

context *context_of(frame *of, world *in) {
  g_autoptr(JSCContext) now = webkit_frame_get_js_context_for_script_world(of->source, in->script);
  for (guint index = 0; index < of->contexts->len; index++) {
    context *each = g_ptr_array_index(of->contexts, index);
    if (each->in == in && each->script == now)
      return each;
  }
  context *made = g_new0(context, 1);
  made->id = line_process() * IDS_PER_PROCESS + ++contexts_made;
  made->of = of;
  made->in = in;
  made->script = g_steal_pointer(&now);
  g_hash_table_insert(contexts, &made->id, made);
  g_ptr_array_add(of->contexts, made);
  announce_context(made);
  return made;
}

context *context_with_id(gint64 id) {
  return contexts ? g_hash_table_lookup(contexts, &id) : NULL;
}

static void report_frame(frame *of) {
  frame *around = frame_around(of);
  const char *parent = around ? frame_label(around) : of->of->target;
  g_autoptr(GString) attached = g_string_new(NULL);
  json_begin_object(attached, NULL);
  json_add_string(attached, "frameId", of->name);
  json_add_string(attached, "parentFrameId", parent);
  json_end_object(attached);
  page_event(of->of, "Page.frameAttached", attached->str);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_begin_object(params, "frame");
  json_add_string(params, "id", of->name);
  json_add_string(params, "parentId", parent);
  json_add_string(params, "loaderId", "");
  json_add_string(params, "url", webkit_frame_get_uri(of->source));
  json_add_string(params, "domainAndRegistry", "");
  json_add_string(params, "securityOrigin", "");
  json_add_string(params, "mimeType", "text/html");
  json_end_object(params);
  json_add_string(params, "type", "Navigation");
  json_end_object(params);
  page_event(of->of, "Page.frameNavigated", params->str);
}

void frame_begin_document(frame *of) {
  drop_document(of);
  of->document = ++documents_begun;
  g_hash_table_insert(frames_by_document, &of->document, of);
  if (!of->is_main)
    report_frame(of);
  frame_helper(of);
  context_of(of, world_own());
}
