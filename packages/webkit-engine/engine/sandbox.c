#include "sandbox.h"

/* WebKit ends the whole program when its sandbox cannot be set up, so that is tried first. */
static gboolean works_here(void) {
  const char *arguments[] = {"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true", NULL};
  g_autofree char *proxy = g_find_program_in_path("xdg-dbus-proxy");
  int status = -1;
  const GSpawnFlags flags = G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL;
  return proxy && g_spawn_sync(NULL, (char **)arguments, NULL, flags, NULL, NULL, NULL, NULL, &status, NULL) &&
         g_spawn_check_wait_status(status, NULL);
}

gboolean sandbox_enable(WebKitWebContext *context, const char *extensions, const char *profile) {
  if (g_strcmp0(g_getenv("BROWSER_NO_SANDBOX"), "1") == 0 || !works_here())
    return FALSE;
  webkit_web_context_set_sandbox_enabled(context, TRUE);
  webkit_web_context_add_path_to_sandbox(context, extensions, TRUE);
  webkit_web_context_add_path_to_sandbox(context, profile, FALSE);
  return TRUE;
}
