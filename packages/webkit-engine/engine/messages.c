#include "messages.h"

#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../common/json.h"
#include "../common/wire.h"

#define METHOD_BYTES_MAX 200u
#define CODE_SERVER_ERROR (-32000)
#define CODE_METHOD_NOT_FOUND (-32601)
/* What may wait for a tool that does not read; beyond this the tool is taken for dead. */
#define UNSENT_BYTES_MAX (512u * 1024u * 1024u)
#define READ_BYTES 65536u

static struct {
  int fd;
  request_handler handler;
  void (*on_close)(void);
  GByteArray *unread;
  GByteArray *unsent;
  gsize unsent_from;
  guint writing;
} line;

static void free_request(request *asked) {
  json_object_unref(asked->params);
  g_free(asked->method);
  g_free(asked->text);
  g_free(asked);
}

static void take_request(guint64 id, const guint8 *method, guint32 method_bytes, const guint8 *params,
                         guint32 params_bytes) {
  request *asked = g_new0(request, 1);
  asked->id = id;
  asked->method = g_strndup((const char *)method, method_bytes);
  asked->text = g_strndup((const char *)params, params_bytes);
  asked->params = json_parse_object(asked->text, params_bytes);
  if (!asked->params) {
    asked->params = json_object_new();
    answer_error(asked, "the params are not a JSON object");
    return;
  }
  asked->session = json_string(asked->params, "$session", NULL);
  line.handler(asked);
}

/* Takes every whole frame that has arrived; FALSE when the other end does not keep to the format. */
static gboolean take_frames(void) {
  gsize from = 0;
  gboolean is_sound = TRUE;
  for (;;) {
    wire_head head;
    if (line.unread->len - from < sizeof head)
      break;
    memcpy(&head, line.unread->data + from, sizeof head);
    is_sound = head.first_bytes <= METHOD_BYTES_MAX && head.second_bytes <= WIRE_BLOCK_BYTES_MAX;
    const gsize bytes = sizeof head + head.first_bytes + head.second_bytes;
    if (!is_sound || line.unread->len - from < bytes)
      break;
    const guint8 *first = line.unread->data + from + sizeof head;
    take_request(head.id, first, head.first_bytes, first + head.first_bytes, head.second_bytes);
    from += bytes;
  }
  if (from > 0)
    g_byte_array_remove_range(line.unread, 0, (guint)from);
  return is_sound;
}

static gboolean on_readable(int fd, GIOCondition condition, gpointer data) {
  (void)condition, (void)data;
  for (;;) {
    const guint used = line.unread->len;
    g_byte_array_set_size(line.unread, used + READ_BYTES);
    const gssize got = recv(fd, line.unread->data + used, READ_BYTES, MSG_DONTWAIT);
    const int error = errno;
    g_byte_array_set_size(line.unread, used + (got > 0 ? (guint)got : 0));
    if (got < 0 && error == EINTR)
      continue;
    if (got == 0 || (got < 0 && error != EAGAIN && error != EWOULDBLOCK)) {
      line.on_close();
      return G_SOURCE_REMOVE;
    }
    if (got < (gssize)READ_BYTES)
      break;
  }
  if (take_frames())
    return G_SOURCE_CONTINUE;
  g_warning("a frame of the tool is not sound");
  line.on_close();
  return G_SOURCE_REMOVE;
}

void messages_listen(int fd, request_handler handler, void (*on_close)(void)) {
  line.fd = fd;
  line.handler = handler;
  line.on_close = on_close;
  line.unread = g_byte_array_new();
  line.unsent = g_byte_array_new();
  g_unix_fd_add(fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_readable, NULL);
}

static gboolean on_writable(int fd, GIOCondition condition, gpointer data) {
  (void)condition, (void)data;
  while (line.unsent_from < line.unsent->len) {
    const gssize sent = send(fd, line.unsent->data + line.unsent_from, line.unsent->len - line.unsent_from,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      line.unsent_from += (gsize)sent;
    else if (sent < 0 && errno == EINTR)
      continue;
    else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return G_SOURCE_CONTINUE;
    else
      break; /* The tool is gone; the reading side says so. */
  }
  line.unsent_from = 0;
  g_byte_array_set_size(line.unsent, 0);
  line.writing = 0;
  return G_SOURCE_REMOVE;
}

static void append(const void *data, gsize bytes) {
  g_byte_array_append(line.unsent, data, (guint)bytes);
}

static void send_frame(guint64 id, const GString *json, GBytes *bytes) {
  gsize content_bytes = 0;
  const void *content = bytes ? g_bytes_get_data(bytes, &content_bytes) : NULL;
  const gsize waiting = line.unsent->len - line.unsent_from;
  if (waiting + json->len + content_bytes > UNSENT_BYTES_MAX) {
    g_warning("the tool does not read any more");
    line.on_close();
    return;
  }
  const wire_head head = {id, (guint32)json->len, (guint32)content_bytes};
  append(&head, sizeof head);
  append(json->str, json->len);
  if (content_bytes > 0)
    append(content, content_bytes);
  /* Most of the time the socket takes it at once. */
  if (!line.writing && on_writable(line.fd, G_IO_OUT, NULL) == G_SOURCE_CONTINUE)
    line.writing = g_unix_fd_add(line.fd, G_IO_OUT, on_writable, NULL);
}

static void finish(request *asked, const char *member, const char *json, GBytes *bytes) {
  g_autoptr(GString) out = g_string_sized_new(strlen(json) + 64);
  json_begin_object(out, NULL);
  if (asked->session)
    json_add_string(out, "sessionId", asked->session);
  json_add_raw(out, member, json);
  json_end_object(out);
  if (out->len <= WIRE_BLOCK_BYTES_MAX) {
    send_frame(asked->id, out, bytes);
    free_request(asked);
  } else
    answer_error(asked, "the answer is larger than %u bytes", WIRE_BLOCK_BYTES_MAX);
}

void answer(request *asked, const char *result) {
  finish(asked, "result", result, NULL);
}

void answer_empty(request *asked) {
  answer(asked, "{}");
}

void answer_bytes(request *asked, GBytes *bytes) {
  if (g_bytes_get_size(bytes) <= WIRE_BLOCK_BYTES_MAX)
    finish(asked, "result", "{}", bytes);
  else
    answer_error(asked, "the answer is larger than %u bytes", WIRE_BLOCK_BYTES_MAX);
}

void answer_code(request *asked, int code, const char *message) {
  g_autoptr(GString) error = g_string_new(NULL);
  json_begin_object(error, NULL);
  json_add_int(error, "code", code);
  json_add_string(error, "message", message);
  json_end_object(error);
  finish(asked, "error", error->str, NULL);
}

void answer_error(request *asked, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  answer_code(asked, CODE_SERVER_ERROR, message);
}

void answer_unsupported(request *asked, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *message = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  answer_code(asked, CODE_METHOD_NOT_FOUND, message);
}

void send_event(const char *session, const char *method, const char *params) {
  g_autoptr(GString) out = g_string_sized_new(strlen(params) + 128);
  json_begin_object(out, NULL);
  json_add_string(out, "method", method);
  if (session)
    json_add_string(out, "sessionId", session);
  json_add_raw(out, "params", params);
  json_end_object(out);
  send_frame(0, out, NULL);
}
