/* Files that pages save: into the folder that the tool names, each under a name of its own. */
#ifndef WEBKIT_ENGINE_DOWNLOADS_H
#define WEBKIT_ENGINE_DOWNLOADS_H

#include "page.h"

void downloads_watch(WebKitWebContext *context);
void downloads_set_behavior(page *of, request *asked);

#endif
