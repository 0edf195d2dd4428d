/*
 * Stops script that does not end. While it runs the page's main thread hears nothing, so a thread of its own
 * waits for the engine's word, and the script itself is made to look up every so often whether it has come.
 */
#include <JavaScriptCore/JavaScript.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../common/gate.h"
#include "line.h"
#include "page.h"

/* How long script runs before it looks up for the first time, and between looks. */
#define LOOK_UP_S 0.05

static atomic_bool is_asked_to_stop;
static int stop_line = -1;

/* Exported by JavaScriptCore, but declared in no header that is installed. */
typedef bool (*should_stop)(JSContextRef script, void *data);
typedef void (*set_time_limit)(JSContextGroupRef group, double seconds, should_stop callback, void *data);

static set_time_limit set_limit;

/* Script that may go on looks up again only when the limit is set once more. */
static bool looks_up(JSContextRef script, void *data) {
  (void)data;
  if (atomic_exchange(&is_asked_to_stop, false))
    return true;
  set_limit(JSContextGetGroup(script), LOOK_UP_S, looks_up, NULL);
  return false;
}

static gpointer wait_for_word(gpointer data) {
  (void)data;
  char word;
  while (line_read(stop_line, &word, 1))
    atomic_store(&is_asked_to_stop, true);
  return NULL;
}

void stop_start(const char *path) {
  stop_line = line_open(path, GATE_STOP);
  if (stop_line >= 0)
    g_thread_unref(g_thread_new("stop-script", wait_for_word, NULL));
}

void stop_watch(WebKitFrame *source) {
  if (set_limit)
    return;
  set_limit = (set_time_limit)dlsym(RTLD_DEFAULT, "JSContextGroupSetExecutionTimeLimit");
  JSGlobalContextRef script = webkit_frame_get_javascript_global_context(source);
  if (set_limit && script)
    set_limit(JSContextGetGroup(script), LOOK_UP_S, looks_up, NULL);
}

void stop_forget(void) {
  atomic_store(&is_asked_to_stop, false);
}
