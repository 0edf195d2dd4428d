/* Whether a page may go where it wants to go, and what becomes of the answer that it gets there. */
#ifndef WEBKIT_ENGINE_POLICY_H
#define WEBKIT_ENGINE_POLICY_H

#include "page.h"

void policy_watch(page *of);
/* Decides what was held back until the tool had prepared the page. */
void policy_release(page *of);

#endif
