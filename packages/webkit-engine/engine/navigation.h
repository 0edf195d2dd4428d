/* Where a page goes: addresses, history, and how far its main document is. */
#ifndef WEBKIT_ENGINE_NAVIGATION_H
#define WEBKIT_ENGINE_NAVIGATION_H

#include "page.h"

void navigation_watch(page *of);
/* The main document has been parsed. */
void navigation_document_loaded(page *of);
/* The main document has gone elsewhere within itself. */
void navigation_stepped(page *of, const char *params);
/* The page goes away, and with it the answer to a Page.navigate that waits for its document. */
void navigation_drop(page *of);
void navigation_clear(navigation *of);

void navigation_go(page *of, request *asked);
void navigation_go_to_entry(page *of, request *asked);
void navigation_history(page *of, request *asked);
void navigation_stop(page *of, request *asked);

#endif
