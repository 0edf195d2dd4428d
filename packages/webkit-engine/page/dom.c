/* Nodes, by ids of their own that hold no node alive, and the closed shadow roots that pages make. */
#include "page.h"

#define WORDS_FOR_NO_NODE "Could not find node with given id"

static const frame *frame_of_node_id(gint64 id, JSCValue **node) {
  const double ids_per_document = 10000000.0;
  frame *of = frame_of_document((guint64)((double)id / ids_per_document));
  if (!of || !frame_helper(of))
    return NULL;
  *node = helper_call(of, "nodeById", jsc_value_new_number(of->helper_context, (double)id), NULL);
  return *node && !jsc_value_is_null(*node) ? of : NULL;
}

/* The node that the request means, as it is in the engine's own world, and its frame. */
static frame *wanted_node(JsonObject *params, JSCValue **node) {
  const char *object_id = json_string(params, "objectId", NULL);
  if (!object_id)
    return (frame *)frame_of_node_id(json_integer(params, "backendNodeId", 0), node);
  context *in = NULL;
  g_autoptr(JSCValue) object = object_with_id(object_id, &in);
  *node = object ? node_in_world(in->of, object, world_private()) : NULL;
  return *node ? in->of : NULL;
}

void dom_describe_node(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of;
  g_autoptr(JSCValue) node = NULL;
  frame *in = wanted_node(params, &node);
  if (!in || !frame_helper(in)) {
    reply_error(message, CODE_SERVER_ERROR, WORDS_FOR_NO_NODE);
    return;
  }
  JSCContext *script = in->helper_context;
  g_autofree char *described = helper_text(
      in, "describeNode", g_object_ref(node),
      jsc_value_new_number(script, (double)json_integer(params, "depth", 0)),
      jsc_value_new_boolean(script, json_flag(params, "pierce", FALSE)), NULL);
  if (described)
    reply_result(message, described);
  else
    reply_error(message, CODE_SERVER_ERROR, "the node cannot be described");
}

void dom_get_frame_owner(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  frame *inner = frame_named(of, json_string(params, "frameId", NULL));
  frame *around = inner && !inner->is_main ? frame_around(inner) : NULL;
  WebKitDOMElement *owner = around ? frame_owner(inner) : NULL;
  JSCValue *node = owner ? webkit_frame_get_js_value_for_dom_object_in_script_world(
                               around->source, WEBKIT_DOM_OBJECT(owner), world_private()->script)
                         : NULL;
  g_autoptr(JSCValue) id = node ? helper_call(around, "idOf", node, NULL) : NULL;
  if (!id) {
    reply_error(message, CODE_SERVER_ERROR, "Frame with the given id was not found.");
    return;
  }
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_int(result, "backendNodeId", (gint64)jsc_value_to_double(id));
  json_end_object(result);
  reply_result(message, result->str);
}

void dom_resolve_node(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of;
  g_autoptr(JSCValue) node = NULL;
  frame *in = wanted_node(params, &node);
  context *wanted = NULL;
  if (in)
    wanted = json_object_has_member(params, "executionContextId")
                 ? context_with_id(json_integer(params, "executionContextId", 0))
                 : context_of(in, world_own());
  if (!wanted) {
    reply_error(message, CODE_SERVER_ERROR, in ? "Cannot find context with specified id" : WORDS_FOR_NO_NODE);
    return;
  }
  g_autoptr(JSCValue) there = node_in_world(wanted->of, node, wanted->in);
  g_autofree char *remote = there ? remote_object(wanted, there, FALSE, FALSE) : NULL;
  if (!remote) {
    reply_error(message, CODE_SERVER_ERROR, WORDS_FOR_NO_NODE);
    return;
  }
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_raw(result, "object", remote);
  json_end_object(result);
  reply_result(message, result->str);
}

char *dom_frame_in(JSCValue *element, gpointer data) {
  web_page *of = page_of_source(data);
  WebKitDOMNode *node = of ? webkit_dom_node_for_js_value(element) : NULL;
  for (guint index = 0; node && index < of->frames->len; index++) {
    frame *each = g_ptr_array_index(of->frames, index);
    if (!each->is_main && (WebKitDOMNode *)frame_owner(each) == node)
      return g_strdup(each->name);
  }
  return g_strdup("");
}

void dom_closed_root(JSCValue *host, JSCValue *root, gpointer data) {
  frame *in = frame_of_document(GPOINTER_TO_SIZE(data));
  if (!in)
    return;
  JSCValue *own_host = node_in_world(in, host, world_private());
  JSCValue *own_root = node_in_world(in, root, world_private());
  if (own_host && own_root) {
    g_autoptr(JSCValue) kept = helper_call(in, "keepClosedRoot", own_host, own_root, NULL);
  } else {
    g_clear_object(&own_host);
    g_clear_object(&own_root);
  }
}

void dom_file_field_clicked(double node_id, gpointer source) {
  web_page *of = page_of_source(source);
  if (of)
    of->clicked_file_field = node_id;
}

void dom_file_field(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)params;
  g_autoptr(GString) result = g_string_new(NULL);
  json_begin_object(result, NULL);
  json_add_int(result, "backendNodeId", (gint64)of->clicked_file_field);
  json_end_object(result);
  of->clicked_file_field = 0;
  reply_result(message, result->str);
}

static void open_chooser(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  (void)of;
  g_autoptr(JSCValue) node = NULL;
  frame *in = wanted_node(params, &node);
  g_autoptr(JSCValue) is_opened = in ? helper_call(in, "openChooser", g_object_ref(node), NULL) : NULL;
  if (is_opened && jsc_value_to_boolean(is_opened))
    reply_result(message, "{}");
  else
    reply_error(message, CODE_SERVER_ERROR, in ? "Node is not a file input element" : WORDS_FOR_NO_NODE);
}

void dom_open_chooser(web_page *of, JsonObject *params, WebKitUserMessage *message) {
  script_hold(of, open_chooser, params, message);
}
