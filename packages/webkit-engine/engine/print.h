#ifndef WEBKIT_ENGINE_PRINT_H
#define WEBKIT_ENGINE_PRINT_H

#include "page.h"

void print_to_pdf(page *of, request *asked);

#endif
