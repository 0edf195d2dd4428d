#define _GNU_SOURCE
#include "line.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../common/gate.h"

gint64 line_process(void) {
  static gint64 drawn = 0;
  if (drawn == 0)
    drawn = g_random_int_range(1, 1 << 20);
  return drawn;
}

int line_open(const char *path, gint64 purpose) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const gate_hello hello = {line_process(), purpose};
  if (strlen(path) >= sizeof address.sun_path)
    return -1;
  strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && line_write(fd, &hello, sizeof hello))
    return fd;
  close(fd);
  return -1;
}

gboolean line_write(int fd, const void *data, gsize bytes) {
  for (gsize done = 0; done < bytes;) {
    const gssize sent = send(fd, (const char *)data + done, bytes - done, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR)
      return FALSE;
    done += sent > 0 ? (gsize)sent : 0;
  }
  return TRUE;
}

gboolean line_read(int fd, void *data, gsize bytes) {
  for (gsize done = 0; done < bytes;) {
    const gssize got = recv(fd, (char *)data + done, bytes - done, 0);
    if (got == 0 || (got < 0 && errno != EINTR))
      return FALSE;
    done += got > 0 ? (gsize)got : 0;
  }
  return TRUE;
}
