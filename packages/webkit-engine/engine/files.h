/* Files for a page: the tool answers the chooser that the page opens, or opens one itself for a field. */
#ifndef WEBKIT_ENGINE_FILES_H
#define WEBKIT_ENGINE_FILES_H

#include "page.h"

void files_watch(page *of);
void files_drop(page *of);

void files_intercept(page *of, request *asked);
void files_set(page *of, request *asked);

#endif
