/* What a page lets be dragged: from the press that lifts it to the place where it is let fall. */
#ifndef WEBKIT_ENGINE_DRAG_H
#define WEBKIT_ENGINE_DRAG_H

#include "page.h"

void drag_watch(page *of);
/* Moves the drag that is running to a place, or lets it fall there; ends the step of the input. */
void drag_step(page *of, request *asked);
void drag_drop(page *of);

void drag_intercept(page *of, request *asked);

#endif
