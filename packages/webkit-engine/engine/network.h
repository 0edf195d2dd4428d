/* What the pages load: requests and answers as WebKit reports them, and bodies as long as it keeps them. */
#ifndef WEBKIT_ENGINE_NETWORK_H
#define WEBKIT_ENGINE_NETWORK_H

#include "page.h"

void network_watch(page *of);
void network_clear(page *of);
void network_get_body(page *of, request *asked);

#endif
