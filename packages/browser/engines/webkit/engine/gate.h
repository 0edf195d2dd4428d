/* Requests of pages that the tool wants to look at first, and the stopping of scripts that do not end. */
#ifndef WEBKIT_ENGINE_GATE_H
#define WEBKIT_ENGINE_GATE_H

#include "page.h"

/* Listens in the profile; the path is handed to the pages' processes. */
gboolean gate_listen(const char *profile, GError **error);
const char *gate_path(void);
void gate_close(void);

void gate_continue(page *of, request *asked);
void gate_fail(page *of, request *asked);
void gate_stop_script(page *of, request *asked);

#endif
