/* A connection to the engine's gate; see common/gate.h. */
#ifndef WEBKIT_ENGINE_PAGE_LINE_H
#define WEBKIT_ENGINE_PAGE_LINE_H

#include <glib.h>

/* The number under which the engine knows this process, below 2^20. */
gint64 line_process(void);
/* -1 when the engine cannot be reached. */
int line_open(const char *path, gint64 purpose);
gboolean line_write(int fd, const void *data, gsize bytes);
gboolean line_read(int fd, void *data, gsize bytes);

#endif
