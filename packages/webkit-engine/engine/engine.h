/* The engine proper: one process with GTK, WebKit and all pages; its main loop is its only thread. */
#ifndef WEBKIT_ENGINE_ENGINE_H
#define WEBKIT_ENGINE_ENGINE_H

#include <json-glib/json-glib.h>

typedef struct engine_settings {
  JsonObject *options;
  const char *profile;
  /* NULL: the display of the one who started the tool, and windows that are seen. */
  const char *display;
  const char *authority;
} engine_settings;

/* Runs until the tool is gone. Returns the exit code. */
int engine_run(const engine_settings *settings);
void engine_end(void);

#endif
