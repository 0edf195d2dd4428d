/* What pages are told of the device that they are shown on, and what they may do there. */
#ifndef WEBKIT_ENGINE_DEVICE_H
#define WEBKIT_ENGINE_DEVICE_H

#include "page.h"

void device_watch(WebKitWebContext *context);
void device_watch_page(page *of);

void device_set_permission(page *of, request *asked);
void device_reset_grants(page *of, request *asked);
void device_set_location(page *of, request *asked);
void device_clear_location(page *of, request *asked);
void device_set_media(page *of, request *asked);
void device_set_user_agent(page *of, request *asked);

#endif
