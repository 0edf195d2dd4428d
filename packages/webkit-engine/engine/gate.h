/* Requests of pages that the tool wants to look at first, and the stopping of scripts that do not end. */
#ifndef WEBKIT_ENGINE_GATE_H
#define WEBKIT_ENGINE_GATE_H

#include "page.h"

/* Listens in the profile; the path is handed to the pages' processes. */
gboolean gate_listen(const char *profile, GError **error);
const char *gate_path(void);
void gate_close(void);
/* Ends the process of a page as if by a fault of its own. FALSE when it is not known. */
gboolean gate_kill_process(const page *of);

/* Stops the script that the page is running; FALSE when its process cannot be reached. */
gboolean gate_stop(const page *of);

void gate_continue(page *of, request *asked);
void gate_fail(page *of, request *asked);
void gate_stop_script(page *of, request *asked);

#endif
