#include "files.h"

#include "../common/json.h"

#define FILES_MAX 1000u

/* NULL when one of them is no path. */
static char **read_paths(JsonArray *given) {
  g_autoptr(GStrvBuilder) paths = g_strv_builder_new();
  for (guint index = 0; given && index < json_array_get_length(given); index++) {
    JsonNode *each = json_array_get_element(given, index);
    const char *path = JSON_NODE_HOLDS_VALUE(each) ? json_node_get_string(each) : NULL;
    if (!path || !g_path_is_absolute(path) || index >= FILES_MAX)
      return NULL;
    g_strv_builder_add(paths, path);
  }
  return g_strv_builder_end(paths);
}

static void select_files(page *of, WebKitFileChooserRequest *chooser, request *asked, char **paths) {
  if (g_strv_length(paths) > 1 && !webkit_file_chooser_request_get_select_multiple(chooser)) {
    webkit_file_chooser_request_cancel(chooser);
    answer_error(asked, "Non-multiple file input can only accept single file");
    return;
  }
  webkit_file_chooser_request_select_files(chooser, (const char *const *)paths);
  page_settle_and_answer(of, asked);
}

static void on_field_named(page *of, int code, const char *text, gpointer data) {
  WebKitFileChooserRequest *chooser = of->files.open;
  if (!chooser || chooser != data)
    return;
  g_autoptr(JsonObject) named = code == 0 ? json_parse_object(text, -1) : NULL;
  /* A field that is in no document was clicked unheard. The chooser is answered all the same, under any id. */
  const gint64 node = MAX(1, json_integer(named, "backendNodeId", 1));
  const gboolean is_multiple = webkit_file_chooser_request_get_select_multiple(chooser);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "frameId", of->target);
  json_add_string(params, "mode", is_multiple ? "selectMultiple" : "selectSingle");
  json_add_int(params, "backendNodeId", node);
  json_end_object(params);
  page_event(of, "Page.fileChooserOpened", params->str);
}

/* WebKit does not say whose chooser it is; the page's process knows which field was clicked last. */
static gboolean on_chooser(WebKitWebView *view, WebKitFileChooserRequest *chooser, gpointer data) {
  (void)view;
  page *of = data;
  if (of->files.asked) {
    g_auto(GStrv) paths = g_steal_pointer(&of->files.paths);
    select_files(of, chooser, g_steal_pointer(&of->files.asked), paths);
    return TRUE;
  }
  files_drop(of);
  if (!of->files.is_intercepted) {
    webkit_file_chooser_request_cancel(chooser);
    return TRUE;
  }
  of->files.open = g_object_ref(chooser);
  page_call(of, "Engine.fileField", "{}", on_field_named, chooser);
  return TRUE;
}

void files_watch(page *of) {
  g_signal_connect(of->view, "run-file-chooser", G_CALLBACK(on_chooser), of);
}

void files_drop(page *of) {
  if (of->files.open)
    webkit_file_chooser_request_cancel(of->files.open);
  g_clear_object(&of->files.open);
}

void files_intercept(page *of, request *asked) {
  of->files.is_intercepted = json_flag(asked->params, "enabled", FALSE);
  if (!of->files.is_intercepted)
    files_drop(of);
  answer_empty(asked);
}

static void give_up(page *of, const char *why) {
  request *asked = g_steal_pointer(&of->files.asked);
  g_clear_pointer(&of->files.paths, g_strfreev);
  if (asked)
    answer_error(asked, "%s", why);
}

static void on_chooser_settled(page *of, gpointer data) {
  (void)data;
  give_up(of, "Node is not a file input element");
}

static void on_chooser_opened(page *of, int code, const char *text, gpointer data) {
  (void)data;
  if (code != 0)
    give_up(of, text);
  else if (of->files.asked)
    page_settle(of, on_chooser_settled, NULL);
}

/* Where no chooser is open the field is made to open one, unseen by the page. */
void files_set(page *of, request *asked) {
  char **paths = read_paths(json_array(asked->params, "files"));
  if (!paths) {
    answer_error(asked, "files must be at most %u absolute paths", FILES_MAX);
    return;
  }
  if (of->files.open) {
    g_autoptr(WebKitFileChooserRequest) chooser = g_steal_pointer(&of->files.open);
    g_auto(GStrv) given = paths;
    select_files(of, chooser, asked, given);
    return;
  }
  give_up(of, "other files were given meanwhile");
  of->files.asked = asked;
  of->files.paths = paths;
  page_call(of, "Engine.openChooser", asked->text, on_chooser_opened, NULL);
}
