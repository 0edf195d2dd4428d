/* WebKit keeps pages from the rest of the machine with bubblewrap, where the kernel and the settings let it. */
#ifndef WEBKIT_ENGINE_SANDBOX_H
#define WEBKIT_ENGINE_SANDBOX_H

#include <webkit2/webkit2.h>

/* Turns it on if it works here; FALSE when pages will run without. */
gboolean sandbox_enable(WebKitWebContext *context, const char *extensions, const char *profile);

#endif
