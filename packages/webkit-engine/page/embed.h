/* Puts a file into the program as a terminated text. */
#ifndef WEBKIT_ENGINE_EMBED_H
#define WEBKIT_ENGINE_EMBED_H

#define EMBED_TEXT(name, path)       \
  __asm__(".section .rodata\n"       \
          ".hidden " #name "\n"      \
          ".global " #name "\n"      \
          #name ":\n"                \
          ".incbin \"" path "\"\n"   \
          ".byte 0\n"                \
          ".previous\n");            \
  extern const char name[] __attribute__((visibility("hidden")))

#endif
