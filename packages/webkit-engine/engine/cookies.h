/* The cookies of all pages. */
#ifndef WEBKIT_ENGINE_COOKIES_H
#define WEBKIT_ENGINE_COOKIES_H

#include "page.h"

void cookies_get_all(page *of, request *asked);
void cookies_get_for_urls(page *of, request *asked);
void cookies_set(page *of, request *asked);
void cookies_clear(page *of, request *asked);

#endif
