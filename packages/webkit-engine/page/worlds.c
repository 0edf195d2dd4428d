/* Worlds of script by their name. WebKit tells each one when a window has a new document. */
#include <string.h>

#include "page.h"

#define WORLDS_MAX 32u

static GPtrArray *worlds;

static void on_own_window_cleared(WebKitScriptWorld *script, WebKitWebPage *source, WebKitFrame *in,
                                  gpointer data) {
  (void)script, (void)data;
  web_page *of = page_of_source(source);
  if (!of)
    return;
  frame *known = frame_of_source(of, in);
  stop_watch(in);
  frame_begin_document(known);
  console_watch_frame(known);
  watch_frame(known);
  prepare_document(known, world_own());
}

static void on_window_cleared(WebKitScriptWorld *script, WebKitWebPage *source, WebKitFrame *in, gpointer data) {
  (void)script;
  web_page *of = page_of_source(source);
  if (of)
    prepare_document(frame_of_source(of, in), data);
}

static world *add_world(const char *name, WebKitScriptWorld *script) {
  world *made = g_new0(world, 1);
  made->name = g_strdup(name);
  made->script = script;
  g_ptr_array_add(worlds, made);
  return made;
}

void worlds_start(void) {
  worlds = g_ptr_array_new();
  g_signal_connect(add_world("", webkit_script_world_get_default())->script, "window-object-cleared",
                   G_CALLBACK(on_own_window_cleared), NULL);
  add_world("browser-engine", webkit_script_world_new_with_name("browser-engine"));
}

world *world_own(void) {
  return g_ptr_array_index(worlds, 0);
}

world *world_private(void) {
  return g_ptr_array_index(worlds, 1);
}

/* Worlds live as long as the process, so there may be only so many; the last one is shared by all beyond. */
world *world_named(const char *name) {
  for (guint index = 2; index < worlds->len; index++) {
    world *each = g_ptr_array_index(worlds, index);
    if (strcmp(each->name, name) == 0)
      return each;
  }
  if (worlds->len >= WORLDS_MAX)
    return g_ptr_array_index(worlds, worlds->len - 1);
  world *made = add_world(name, webkit_script_world_new_with_name(name));
  g_signal_connect(made->script, "window-object-cleared", G_CALLBACK(on_window_cleared), made);
  return made;
}
