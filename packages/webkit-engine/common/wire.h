/*
 * What runs between the library, which the tool has loaded, and the engine's own process: frames on a socket
 * pair, each a head and two blocks. In a request the blocks are the method and its params, in an answer or an
 * event (id 0) the JSON and the binary content. Both ends are the same machine, so numbers are sent as they are.
 */
#ifndef WEBKIT_ENGINE_WIRE_H
#define WEBKIT_ENGINE_WIRE_H

#include <stdint.h>

#define WIRE_BLOCK_BYTES_MAX (256u * 1024u * 1024u)

typedef struct wire_head {
  uint64_t id;
  uint32_t first_bytes;
  uint32_t second_bytes;
} wire_head;

/* Descriptors of the engine's process: frames, and the line that says when and why it ends. */
#define WIRE_MESSAGES_FD 3
#define WIRE_CONTROL_FD 4

/* The options of be_create are the first thing on the control line: their length, then the JSON. */
#define WIRE_OPTIONS_BYTES_MAX (64u * 1024u)
/* The last thing on it, from the other end, is why the engine has ended: plain text, at most this long. */
#define WIRE_REASON_BYTES_MAX 4096u

#endif
