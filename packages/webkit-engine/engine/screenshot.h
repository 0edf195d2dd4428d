#ifndef WEBKIT_ENGINE_SCREENSHOT_H
#define WEBKIT_ENGINE_SCREENSHOT_H

#include "page.h"

void screenshot_capture(page *of, request *asked);

#endif
