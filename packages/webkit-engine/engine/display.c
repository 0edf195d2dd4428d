#define _GNU_SOURCE
#include "display.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

/* Pages read it as the size of the screen; their own size does not depend on it. */
#define SCREEN "1920x1080x24"

/* One entry of an Xauthority file: it is good for every host and every display number. */
static gboolean write_authority(const char *path) {
  static const char name[] = "MIT-MAGIC-COOKIE-1";
  unsigned char entry[2 + 2 + 2 + 2 + sizeof name - 1 + 2 + 16];
  unsigned char *at = entry;
  const guint16 family_wild = 0xffff;
  const guint16 fields[] = {family_wild, 0, 0, sizeof name - 1};
  for (size_t index = 0; index < G_N_ELEMENTS(fields); index++) {
    *at++ = fields[index] >> 8;
    *at++ = fields[index] & 0xff;
  }
  memcpy(at, name, sizeof name - 1);
  at += sizeof name - 1;
  *at++ = 0;
  *at++ = 16;
  if (getrandom(at, 16, 0) != 16)
    return FALSE;
  return g_file_set_contents_full(path, (const char *)entry, sizeof entry, G_FILE_SET_CONTENTS_NONE, 0600,
                                  NULL);
}

/* The server writes its number, and a newline, once it serves. */
static gboolean read_number(int fd, char number[8], int wait_ms_max) {
  const gint64 end_us = g_get_monotonic_time() + wait_ms_max * G_TIME_SPAN_MILLISECOND;
  for (size_t used = 0; used < 7;) {
    const gint64 left_ms = (end_us - g_get_monotonic_time()) / G_TIME_SPAN_MILLISECOND;
    struct pollfd waiting = {fd, POLLIN, 0};
    if (left_ms <= 0 || poll(&waiting, 1, (int)left_ms) <= 0 || read(fd, number + used, 1) != 1)
      return FALSE;
    if (number[used] == '\n') {
      number[used] = '\0';
      return used > 0;
    }
    used++;
  }
  return FALSE;
}

static void become_server(const char *authority, int number_fd, int complaints_fd) {
  const int own_number_fd = 3;
  dup2(complaints_fd, STDERR_FILENO);
  dup2(number_fd, own_number_fd);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGTERM, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  execlp("Xvfb", "Xvfb", "-displayfd", "3", "-screen", "0", SCREEN, "-nolisten", "tcp", "-auth", authority,
         "-noreset", (char *)NULL);
  static const char failed[] = "Xvfb could not be started; is it installed?\n";
  if (write(STDERR_FILENO, failed, sizeof failed - 1) < 0)
    _exit(126);
  _exit(127);
}

char *display_start(display_server *server, const char *folder, int complaints_fd, int wait_ms_max) {
  server->authority = g_build_filename(folder, "authority", NULL);
  if (!write_authority(server->authority))
    return g_strdup_printf("%s cannot be written", server->authority);
  int number_fds[2];
  if (pipe2(number_fds, O_CLOEXEC) != 0)
    return g_strdup(g_strerror(errno));
  server->process = fork();
  if (server->process == 0)
    become_server(server->authority, number_fds[1], complaints_fd);
  close(number_fds[1]);
  char number[8] = "";
  const gboolean serves = server->process > 0 && read_number(number_fds[0], number, wait_ms_max);
  close(number_fds[0]);
  if (!serves)
    return g_strdup("Xvfb did not come up");
  g_snprintf(server->name, sizeof server->name, ":%s", number);
  return NULL;
}

void display_stop(const display_server *server) {
  if (server->process > 0)
    kill(server->process, SIGTERM);
}

void display_remove_files(const display_server *server) {
  if (server->name[0] != ':')
    return;
  g_autofree char *lock = g_strdup_printf("/tmp/.X%s-lock", server->name + 1);
  g_autofree char *socket = g_strdup_printf("/tmp/.X11-unix/X%s", server->name + 1);
  g_unlink(lock);
  g_unlink(socket);
}

void display_clear(display_server *server) {
  g_free(server->authority);
}
