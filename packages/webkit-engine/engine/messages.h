/* Requests from the tool, and the answers and events that go back to it. */
#ifndef WEBKIT_ENGINE_MESSAGES_H
#define WEBKIT_ENGINE_MESSAGES_H

#include <json-glib/json-glib.h>

/* A request is answered exactly once; answering frees it. */
typedef struct request {
  guint64 id;
  char *method;
  char *text;
  JsonObject *params;
  /* NULL for the browser as a whole. */
  const char *session;
} request;

typedef void (*request_handler)(request *asked);

/* Reads requests from the socket until it closes, which calls on_close. */
void messages_listen(int fd, request_handler handler, void (*on_close)(void));

void answer(request *asked, const char *result);
void answer_empty(request *asked);
/* The tool puts the bytes into the result's member "data". */
void answer_bytes(request *asked, GBytes *bytes);
void answer_error(request *asked, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* For what this engine cannot do; the tool says "not supported" and passes the words on. */
void answer_unsupported(request *asked, const char *format, ...) G_GNUC_PRINTF(2, 3);
/* An error as the page's process worded it. */
void answer_code(request *asked, int code, const char *message);

void send_event(const char *session, const char *method, const char *params);

#endif
