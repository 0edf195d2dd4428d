/*
 * The seven functions of browser_engine.h. WebKit and GTK run in a process of their own: they would share
 * symbols, signals and a heap with the JavaScript engine that the tool itself is made of, and a crash of theirs
 * would be the tool's. So nothing here needs a thread: sockets hold what either side has not read yet.
 */
#define _GNU_SOURCE
#include "browser_engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../common/methods.h"
#include "../common/wire.h"

#define ENGINE_FILE "browser-webkit-engine"
/* What may wait in the library for an engine that reads slowly; more is refused with BE_E_BUSY. */
#define UNSENT_BYTES_MAX (64u * 1024u * 1024u)
#define READ_BYTES 65536u
#define KEPT_BYTES_MAX (1024u * 1024u)
#define DESTROY_WAIT_MS_MAX 5000

extern char **environ;

/* Bytes in the order in which they came: taken from the start, added at the end. */
typedef struct buffer {
  uint8_t *data;
  size_t start;
  size_t end;
  size_t size;
} buffer;

typedef struct engine {
  pid_t process;
  int messages;
  int control;
  /* The engine has closed its end; what it sent before is still handed out. */
  bool has_ended;
  bool has_told_why;
  buffer unsent;
  buffer unread;
  /* What the last be_poll handed out of `unread`, or of `farewell`. */
  size_t handed_out;
  char farewell[WIRE_REASON_BYTES_MAX * 6 + 128];
} engine;

static size_t held(const buffer *of) {
  return of->end - of->start;
}

/* Makes room at the end; what has been taken from the start is given up first. */
static bool reserve(buffer *to, size_t more) {
  if (more <= to->size - to->end)
    return true;
  if (to->start > 0) {
    memmove(to->data, to->data + to->start, held(to));
    to->end -= to->start;
    to->start = 0;
  }
  size_t size = to->size ? to->size : READ_BYTES;
  while (size - to->end < more)
    size *= 2;
  if (size == to->size)
    return true;
  uint8_t *data = realloc(to->data, size);
  if (!data)
    return false;
  to->data = data;
  to->size = size;
  return true;
}

static void append(buffer *to, const void *data, size_t bytes) {
  memcpy(to->data + to->end, data, bytes);
  to->end += bytes;
}

/* An emptied buffer starts over, and one that had to grow far gives its memory back. */
static void take(buffer *from, size_t bytes) {
  from->start += bytes;
  if (held(from) > 0)
    return;
  from->start = from->end = 0;
  if (from->size > KEPT_BYTES_MAX) {
    free(from->data);
    *from = (buffer){0};
  }
}

uint32_t be_abi_version(void) {
  return BE_ABI_VERSION;
}

#define QUOTED(method, where, handler) "\"" method "\","
const char *be_info(void) {
  return "{\"name\":\"webkit\",\"version\":\"" WEBKIT_VERSION "\",\"methods\":[" ENGINE_METHODS(QUOTED)
         "\"Target.setAutoAttach\"]}";
}

/* The engine lies beside this library. */
static bool engine_path(char path[PATH_MAX]) {
  Dl_info info;
  if (!dladdr((void *)be_create, &info) || !info.dli_fname)
    return false;
  const char *slash = strrchr(info.dli_fname, '/');
  const int folder_bytes = slash ? (int)(slash + 1 - info.dli_fname) : 0;
  const int length = snprintf(path, PATH_MAX, "%.*s" ENGINE_FILE, folder_bytes, info.dli_fname);
  return length > 0 && length < PATH_MAX;
}

/* The engine is in a session of its own, so a signal to the tool's group does not reach it. */
static int spawn_engine(const char *path, int messages, int control, pid_t *process) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  if (posix_spawn_file_actions_init(&files) != 0)
    return ENOMEM;
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&files);
    return ENOMEM;
  }
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  char *const arguments[] = {(char *)path, NULL};
  int failed = posix_spawn_file_actions_adddup2(&files, messages, WIRE_MESSAGES_FD);
  failed = failed ? failed : posix_spawn_file_actions_adddup2(&files, control, WIRE_CONTROL_FD);
  /* MCP speaks on standard output; nobody else may. */
  failed = failed ? failed : posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
  failed = failed ? failed : posix_spawn_file_actions_adddup2(&files, 0, 1);
  failed = failed ? failed : posix_spawn(process, path, &files, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

/* Only the outside is looked at; the engine reads the members, and forgives those it does not know. */
static bool looks_like_object(const char *json, size_t length) {
  while (length > 0 && strchr(" \t\r\n", json[length - 1]))
    length--;
  const char *first = json + strspn(json, " \t\r\n");
  return *first == '{' && length > 1 && json[length - 1] == '}';
}

/* The far ends must not be 3 or 4 themselves: there a dup2 onto itself would keep close-on-exec. */
static bool socket_pair(int ends[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return false;
  const int moved = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
  close(ends[1]);
  ends[1] = moved;
  if (moved < 0)
    close(ends[0]);
  return moved >= 0;
}

static bool send_options(int control, const char *options, uint32_t length) {
  uint8_t frame[sizeof length + WIRE_OPTIONS_BYTES_MAX];
  memcpy(frame, &length, sizeof length);
  memcpy(frame + sizeof length, options, length);
  const size_t bytes = sizeof length + length;
  return send(control, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

int32_t be_create(const char *options, void **handle) {
  if (!options || !handle)
    return BE_E_INVALID;
  *handle = NULL;
  const size_t length = strnlen(options, WIRE_OPTIONS_BYTES_MAX + 1);
  if (length > WIRE_OPTIONS_BYTES_MAX || !looks_like_object(options, length))
    return BE_E_INVALID;
  char path[PATH_MAX];
  if (!engine_path(path))
    return BE_E_INTERNAL;
  engine *made = calloc(1, sizeof *made);
  if (!made)
    return BE_E_INTERNAL;
  int messages[2], control[2];
  if (!socket_pair(messages)) {
    free(made);
    return BE_E_INTERNAL;
  }
  if (!socket_pair(control)) {
    close(messages[0]);
    close(messages[1]);
    free(made);
    return BE_E_INTERNAL;
  }
  made->messages = messages[0];
  made->control = control[0];
  const int failed = spawn_engine(path, messages[1], control[1], &made->process);
  close(messages[1]);
  close(control[1]);
  if (failed) {
    fprintf(stderr, "webkit: %s did not start: %s\n", path, strerror(failed));
    close(made->messages);
    close(made->control);
    free(made);
    return BE_E_INTERNAL;
  }
  if (!send_options(made->control, options, (uint32_t)length)) {
    be_destroy(made);
    return BE_E_INTERNAL;
  }
  *handle = made;
  return BE_OK;
}

/* Sends as much as the socket takes. */
static void flush(engine *to) {
  while (held(&to->unsent) > 0 && !to->has_ended) {
    const ssize_t sent = send(to->messages, to->unsent.data + to->unsent.start, held(&to->unsent),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      take(&to->unsent, (size_t)sent);
    else if (sent < 0 && errno == EINTR)
      continue;
    else
      return;
  }
}

int32_t be_send(void *handle, uint64_t id, const char *method, const char *params) {
  engine *to = handle;
  if (!to || id == 0 || !method || !params)
    return BE_E_INVALID;
  /* Until be_poll has said why, the request is dropped in silence: an error here would hide the reason. */
  if (to->has_ended)
    return to->has_told_why ? BE_E_CLOSED : BE_OK;
  const size_t method_bytes = strlen(method);
  const size_t params_bytes = strlen(params);
  if (method_bytes > WIRE_BLOCK_BYTES_MAX || params_bytes > WIRE_BLOCK_BYTES_MAX)
    return BE_E_INVALID;
  flush(to);
  const size_t bytes = sizeof(wire_head) + method_bytes + params_bytes;
  /* One request that is larger than the bound is taken when it is the only one. */
  if (held(&to->unsent) > 0 && held(&to->unsent) + bytes > UNSENT_BYTES_MAX)
    return BE_E_BUSY;
  if (!reserve(&to->unsent, bytes))
    return BE_E_INTERNAL;
  const wire_head head = {id, (uint32_t)method_bytes, (uint32_t)params_bytes};
  append(&to->unsent, &head, sizeof head);
  append(&to->unsent, method, method_bytes);
  append(&to->unsent, params, params_bytes);
  flush(to);
  return BE_OK;
}

/* Takes what has arrived, up to one whole frame and what came with it. */
static bool receive(engine *from, size_t wanted) {
  buffer *into = &from->unread;
  while (held(into) < wanted && !from->has_ended) {
    const size_t missing = wanted - held(into);
    if (!reserve(into, missing > READ_BYTES ? missing : READ_BYTES))
      return false;
    const ssize_t got = recv(from->messages, into->data + into->end, into->size - into->end, MSG_DONTWAIT);
    if (got > 0)
      into->end += (size_t)got;
    else if (got < 0 && errno == EINTR)
      continue;
    else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    else
      from->has_ended = true;
  }
  return true;
}

/* The reason is plain text of the engine's; as JSON it can be six times as long. */
static void write_farewell(engine *of, const char *reason, size_t length) {
  char *at = of->farewell;
  at = stpcpy(at, "{\"method\":\"Inspector.detached\",\"params\":{\"reason\":\"");
  for (size_t index = 0; index < length; index++) {
    const unsigned char byte = (unsigned char)reason[index];
    if (byte == '"' || byte == '\\' || byte < 0x20)
      at += sprintf(at, "\\u%04x", byte);
    else
      *at++ = (char)byte;
  }
  strcpy(at, "\"}}");
}

/* Why the engine has ended comes on the control line, a moment after its messages have ended. */
static int32_t say_farewell(engine *of, be_msg *out) {
  char reason[WIRE_REASON_BYTES_MAX];
  struct pollfd waiting = {of->control, POLLIN, 0};
  size_t length = 0;
  while (length < sizeof reason && poll(&waiting, 1, 0) > 0) {
    const ssize_t got = recv(of->control, reason + length, sizeof reason - length, MSG_DONTWAIT);
    if (got <= 0) {
      of->has_told_why = true;
      break;
    }
    length += (size_t)got;
    of->has_told_why = true;
  }
  if (!of->has_told_why)
    return 0;
  if (length == 0)
    return BE_E_CLOSED;
  write_farewell(of, reason, length);
  *out = (be_msg){0, of->farewell, strlen(of->farewell), NULL, 0};
  return 1;
}

int32_t be_poll(void *handle, be_msg *out) {
  engine *from = handle;
  if (!from || !out)
    return BE_E_INVALID;
  flush(from);
  wire_head head;
  if (!receive(from, sizeof head))
    return BE_E_INTERNAL;
  if (held(&from->unread) >= sizeof head) {
    memcpy(&head, from->unread.data + from->unread.start, sizeof head);
    if (head.first_bytes > WIRE_BLOCK_BYTES_MAX || head.second_bytes > WIRE_BLOCK_BYTES_MAX)
      return BE_E_INTERNAL;
    const size_t bytes = sizeof head + head.first_bytes + head.second_bytes;
    if (!receive(from, bytes))
      return BE_E_INTERNAL;
    if (held(&from->unread) >= bytes) {
      const uint8_t *first = from->unread.data + from->unread.start + sizeof head;
      const uint8_t *second = head.second_bytes ? first + head.first_bytes : NULL;
      *out = (be_msg){head.id, (const char *)first, head.first_bytes, second, head.second_bytes};
      from->handed_out = bytes;
      return 1;
    }
  }
  if (!from->has_ended)
    return 0;
  return from->has_told_why ? BE_E_CLOSED : say_farewell(from, out);
}

void be_msg_free(void *handle, be_msg *msg) {
  engine *of = handle;
  if (!of || !msg)
    return;
  if (of->handed_out > 0)
    take(&of->unread, of->handed_out);
  of->handed_out = 0;
  *msg = (be_msg){0};
}

static bool has_exited(pid_t process) {
  const pid_t waited = waitpid(process, NULL, WNOHANG);
  return waited == process || (waited < 0 && errno == ECHILD);
}

void be_destroy(void *handle) {
  engine *of = handle;
  if (!of)
    return;
  /* At the end of its control line the engine's supervisor ends everything, deletes the profile, and exits. */
  close(of->control);
  close(of->messages);
  const struct timespec pause = {0, 2 * 1000 * 1000};
  int waited_ms = 0;
  while (!has_exited(of->process)) {
    if (waited_ms >= DESTROY_WAIT_MS_MAX) {
      kill(of->process, SIGKILL);
      waitpid(of->process, NULL, 0);
      break;
    }
    nanosleep(&pause, NULL);
    waited_ms += 2;
  }
  free(of->unsent.data);
  free(of->unread.data);
  free(of);
}
