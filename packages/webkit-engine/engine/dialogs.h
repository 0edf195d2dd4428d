/* alert, confirm, prompt and the question before leaving a page: the tool answers them. */
#ifndef WEBKIT_ENGINE_DIALOGS_H
#define WEBKIT_ENGINE_DIALOGS_H

#include "page.h"

void dialogs_watch(page *of);
/* Dismisses the one that is open, because its page is going away. */
void dialogs_drop(page *of);
void dialog_answer(page *of, request *asked);

#endif
