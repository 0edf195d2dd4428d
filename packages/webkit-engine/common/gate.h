/*
 * The second line between the engine and each page's process, a socket in the profile. WebKit's own messages
 * wait for the page's main thread; what comes here does not. Each process opens two connections:
 *   questions   the process asks about a request that a page is about to make, or what has been prepared for a page
 *               that it has just been given, and stands still until it is told
 *   stop        a byte from the engine stops the script that is running
 * Each begins with one gate_hello. A question and its answer are a length and so much JSON.
 */
#ifndef WEBKIT_ENGINE_GATE_LINE_H
#define WEBKIT_ENGINE_GATE_LINE_H

#include <stdint.h>

#define GATE_SOCKET_NAME "gate"
#define GATE_JSON_BYTES_MAX (1024u * 1024u)

enum { GATE_QUESTIONS = 1, GATE_STOP = 2 };

/* A process is known by a number that it has drawn; in the sandbox its own id says nothing. */
typedef struct gate_hello {
  int64_t process;
  int64_t purpose;
} gate_hello;

#endif
