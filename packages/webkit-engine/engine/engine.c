#include "engine.h"

#include <gtk/gtk.h>
#include <stdlib.h>

#include "../common/wire.h"
#include "browser.h"
#include "gate.h"
#include "messages.h"

static GMainLoop *loop;

void engine_end(void) {
  g_main_loop_quit(loop);
}

/* Keeps GTK and WebKit away from the user's desktop session and home folder. */
static void set_environment(const engine_settings *settings) {
  static const char *const quiet[][2] = {
      {"GDK_BACKEND", "x11"},
      {"NO_AT_BRIDGE", "1"},
      {"GTK_A11Y", "none"},
      {"GTK_IM_MODULE", "gtk-im-context-simple"},
      {"GSETTINGS_BACKEND", "memory"},
      {"GIO_USE_VFS", "local"},
      {"DBUS_SESSION_BUS_ADDRESS", "disabled:"},
  };
  for (gsize index = 0; index < G_N_ELEMENTS(quiet); index++)
    g_setenv(quiet[index][0], quiet[index][1], TRUE);
  static const char *const folders[][2] = {
      {"XDG_CACHE_HOME", "cache"}, {"XDG_DATA_HOME", "data"}, {"XDG_CONFIG_HOME", "data"}, {"TMPDIR", "tmp"}};
  for (gsize index = 0; index < G_N_ELEMENTS(folders); index++) {
    g_autofree char *path = g_build_filename(settings->profile, folders[index][1], NULL);
    g_setenv(folders[index][0], path, TRUE);
  }
  if (settings->display) {
    g_setenv("DISPLAY", settings->display, TRUE);
    g_setenv("XAUTHORITY", settings->authority, TRUE);
  }
  static const char *const unwanted[] = {
      "GDK_DPI_SCALE", "GDK_SCALE", "GTK_MODULES", "GTK_THEME", "WAYLAND_DISPLAY", "WEBKIT_INSPECTOR_HTTP_SERVER",
      "WEBKIT_INSPECTOR_SERVER",
  };
  for (gsize index = 0; index < G_N_ELEMENTS(unwanted); index++)
    g_unsetenv(unwanted[index]);
}

int engine_run(const engine_settings *settings) {
  set_environment(settings);
  g_set_prgname("browser-webkit-engine");
  if (!gtk_init_check(NULL, NULL)) {
    g_printerr("the display %s cannot be opened\n", g_getenv("DISPLAY"));
    return 1;
  }
  if (!browser_is_complete()) {
    g_printerr("the part of the engine for the pages is not beside it (page/%s)\n", PAGE_EXTENSION_FILE);
    return 1;
  }
  g_autoptr(GError) error = NULL;
  if (!gate_listen(settings->profile, &error)) {
    g_printerr("%s\n", error->message);
    return 1;
  }
  loop = g_main_loop_new(NULL, FALSE);
  browser_start(settings);
  messages_listen(WIRE_MESSAGES_FD, browser_dispatch, engine_end);
  g_main_loop_run(loop);
  browser_stop();
  gate_close();
  g_main_loop_unref(loop);
  return 0;
}
