/* From the protocol's names of keys to those of GDK. */
#ifndef WEBKIT_ENGINE_KEYS_H
#define WEBKIT_ENGINE_KEYS_H

#include <glib.h>

/* What the key means ("a", "Enter"), as GDK's value; 0 for a name that is not known. */
guint keys_value(const char *key);
/* Where the key lies ("KeyA"), as the code of the hardware; 0 where it is not known. */
guint16 keys_place(const char *code);

#endif
