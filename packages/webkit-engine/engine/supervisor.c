/*
 * The process that the library starts. It runs no WebKit itself: it makes the profile, starts a display and the
 * engine proper as children, and waits. When the tool closes the control line, however the tool has ended, or
 * when a child ends, it ends everything and deletes the profile; why is the last word on the control line.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../common/json.h"
#include "../common/wire.h"
#include "display.h"
#include "engine.h"

/* How much of what the children complain about is kept for the reason of an unexpected end. */
#define COMPLAINTS_BYTES_MAX 1500u
#define DISPLAY_WAIT_MS_MAX 20000
/* An X server that is told to end removes its socket; it is given this long. */
#define GOODBYE_MS_MAX 1000
#define REMOVE_TRIES_MAX 60
/* A socket's path may be 107 bytes; the name inside the profile needs some of them. */
#define PROFILE_PATH_BYTES_MAX 90u

typedef struct supervisor {
  char *profile;
  display_server display;
  pid_t engine;
  int complaints_fd;
  char complaints[COMPLAINTS_BYTES_MAX + 1];
  size_t complaints_used;
} supervisor;

static void say_why(const supervisor *of, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* The reason, with what the children last complained about. */
static void say_why(const supervisor *of, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  g_autofree char *reason = g_strdup_vprintf(format, arguments);
  va_end(arguments);
  g_autofree char *said = g_strstrip(g_utf8_make_valid(of->complaints, (gssize)of->complaints_used));
  g_autofree char *whole = *said ? g_strdup_printf("%s; it said: %s", reason, said) : g_strdup(reason);
  size_t bytes = strlen(whole);
  while (bytes > WIRE_REASON_BYTES_MAX || (whole[bytes] & 0xc0) == 0x80)
    bytes--;
  if (write(WIRE_CONTROL_FD, whole, bytes) < 0)
    return; /* The tool is gone, so nobody wants to know. */
}

static void keep_complaints(supervisor *of) {
  char chunk[COMPLAINTS_BYTES_MAX];
  const ssize_t got = read(of->complaints_fd, chunk, sizeof chunk);
  if (got <= 0)
    return;
  if (g_getenv("BROWSER_WEBKIT_VERBOSE"))
    fprintf(stderr, "%.*s", (int)got, chunk);
  const size_t fresh = (size_t)got;
  const size_t kept = MIN(of->complaints_used, COMPLAINTS_BYTES_MAX - fresh);
  memmove(of->complaints, of->complaints + of->complaints_used - kept, kept);
  memcpy(of->complaints + kept, chunk, fresh);
  of->complaints_used = kept + fresh;
}

static gboolean read_whole(int fd, void *into, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = read(fd, (char *)into + done, bytes - done);
    if (got <= 0 && errno != EINTR)
      return FALSE;
    if (got > 0)
      done += (size_t)got;
  }
  return TRUE;
}

static JsonObject *read_options(void) {
  guint32 bytes = 0;
  if (!read_whole(WIRE_CONTROL_FD, &bytes, sizeof bytes) || bytes > WIRE_OPTIONS_BYTES_MAX)
    return NULL;
  g_autofree char *text = g_malloc(bytes + 1);
  if (!read_whole(WIRE_CONTROL_FD, text, bytes))
    return NULL;
  return json_parse_object(text, bytes);
}

static gboolean is_empty_folder(const char *path) {
  g_autoptr(GDir) folder = g_dir_open(path, 0, NULL);
  return folder && !g_dir_read_name(folder);
}

/* The folder that was given, where it is empty; else one of its own, so that what lies there already stays. */
static char *make_profile(JsonObject *options) {
  const char *given = json_string(options, "profileDir", NULL);
  const gboolean is_usable = given && strlen(given) <= PROFILE_PATH_BYTES_MAX && is_empty_folder(given);
  const char *parent = strlen(g_get_tmp_dir()) <= PROFILE_PATH_BYTES_MAX ? g_get_tmp_dir() : "/tmp";
  g_autofree char *path =
      is_usable ? g_strdup(given) : g_build_filename(parent, "browser-webkit-XXXXXX", NULL);
  if (!is_usable && !g_mkdtemp(path))
    return NULL;
  for (const char *const *name = (const char *const[]){"cache", "data", "tmp", NULL}; *name; name++) {
    g_autofree char *inner = g_build_filename(path, *name, NULL);
    if (mkdir(inner, 0700) != 0)
      return NULL;
  }
  return g_steal_pointer(&path);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Processes that are being killed may still write, hence again until it lasts. */
static void remove_profile(const char *path) {
  const int open_folders_max = 16;
  for (int tries = 0; tries < REMOVE_TRIES_MAX && access(path, F_OK) == 0; tries++) {
    if (nftw(path, remove_entry, open_folders_max, FTW_DEPTH | FTW_PHYS) != 0)
      g_usleep(20 * 1000);
  }
}

static gboolean reap_until_none(int limit_ms) {
  for (int waited_ms = 0;; waited_ms += 2) {
    pid_t reaped;
    while ((reaped = waitpid(-1, NULL, WNOHANG)) > 0)
      ;
    if (reaped < 0 && errno == ECHILD)
      return TRUE;
    if (waited_ms >= limit_ms)
      return FALSE;
    g_usleep(2 * 1000);
  }
}

/* Orphans of this process tree are this process's children, whichever group they have put themselves into. */
static void kill_children(void) {
  g_autofree char *list = g_strdup_printf("/proc/self/task/%d/children", getpid());
  g_autofree char *text = NULL;
  if (!g_file_get_contents(list, &text, NULL, NULL))
    return;
  g_auto(GStrv) children = g_strsplit(g_strstrip(text), " ", -1);
  for (char **child = children; *child; child++) {
    const pid_t process = (pid_t)g_ascii_strtoll(*child, NULL, 10);
    if (process > 1)
      kill(process, SIGKILL);
  }
}

static void end_everything(supervisor *of) {
  if (of->engine > 0)
    kill(-of->engine, SIGKILL);
  display_stop(&of->display);
  if (!reap_until_none(GOODBYE_MS_MAX)) {
    do
      kill_children();
    while (!reap_until_none(100));
    display_remove_files(&of->display);
  }
  if (of->profile)
    remove_profile(of->profile);
}

static void describe_end(const supervisor *of, const char *who, int status) {
  if (WIFSIGNALED(status))
    say_why(of, "%s was killed by signal %d (%s)", who, WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    say_why(of, "%s exited with code %d", who, WEXITSTATUS(status));
}

/* Whether a child that everything depends on has ended; WebKit's own processes are the engine's affair. */
static gboolean has_lost_child(const supervisor *of) {
  int status = 0;
  pid_t ended;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
    if (ended != of->engine && ended != of->display.process)
      continue;
    describe_end(of, ended == of->engine ? "WebKit's process" : "its display (Xvfb)", status);
    return TRUE;
  }
  return FALSE;
}

static int child_pipe[2];

/* On whichever thread the signal comes: the libraries that are linked in may have begun some. */
static void on_child(int number) {
  (void)number;
  const int error = errno;
  if (write(child_pipe[1], "", 1) < 0) {
    /* The pipe is full of the same news. */
  }
  errno = error;
}

static gboolean hear_children(void) {
  const struct sigaction hear = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
  for (const int *number = (const int[]){SIGHUP, SIGINT, SIGTERM, SIGPIPE, 0}; *number; number++)
    signal(*number, SIG_IGN);
  return pipe2(child_pipe, O_CLOEXEC | O_NONBLOCK) == 0 && sigaction(SIGCHLD, &hear, NULL) == 0;
}

static void wait_for_end(supervisor *of) {
  enum { CONTROL, CHILDREN, COMPLAINTS, COUNT };
  struct pollfd waiting[COUNT] = {
      [CONTROL] = {WIRE_CONTROL_FD, POLLIN, 0},
      [CHILDREN] = {child_pipe[0], POLLIN, 0},
      [COMPLAINTS] = {of->complaints_fd, POLLIN, 0},
  };
  for (;;) {
    if (poll(waiting, COUNT, -1) < 0)
      continue;
    if (waiting[COMPLAINTS].revents)
      keep_complaints(of);
    if (waiting[CONTROL].revents)
      return;
    char news[64];
    if (waiting[CHILDREN].revents && read(child_pipe[0], news, sizeof news) > 0) {
      /* What the child said last is still on its way through the pipe. */
      keep_complaints(of);
      if (has_lost_child(of))
        return;
    }
  }
}

static void become_engine(const supervisor *of, JsonObject *options) {
  const engine_settings settings = {
      .options = options,
      .profile = of->profile,
      .display = of->display.process > 0 ? of->display.name : NULL,
      .authority = of->display.process > 0 ? of->display.authority : NULL,
  };
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(WIRE_CONTROL_FD);
  for (const int *number = (const int[]){SIGCHLD, SIGHUP, SIGINT, SIGTERM, 0}; *number; number++)
    signal(*number, SIG_DFL);
  exit(engine_run(&settings));
}

/* Everything up to the running engine; FALSE when it has said why that cannot be. */
static gboolean start(supervisor *of, JsonObject *options) {
  int complaints[2];
  if (pipe2(complaints, O_CLOEXEC) != 0) {
    say_why(of, "no pipe: %s", g_strerror(errno));
    return FALSE;
  }
  of->complaints_fd = complaints[0];
  fcntl(of->complaints_fd, F_SETFL, O_NONBLOCK);
  of->profile = make_profile(options);
  if (!of->profile) {
    say_why(of, "no profile could be made in the temporary folder: %s", g_strerror(errno));
    return FALSE;
  }
  if (json_flag(options, "headless", TRUE)) {
    g_autofree char *why = display_start(&of->display, of->profile, complaints[1], DISPLAY_WAIT_MS_MAX);
    if (why) {
      keep_complaints(of);
      say_why(of, "no display: %s", why);
      return FALSE;
    }
  }
  of->engine = fork();
  if (of->engine == 0) {
    dup2(complaints[1], STDERR_FILENO);
    become_engine(of, options);
  }
  close(complaints[1]);
  if (of->engine < 0) {
    say_why(of, "no process: %s", g_strerror(errno));
    return FALSE;
  }
  return TRUE;
}

int main(void) {
  supervisor of = {.complaints_fd = -1};
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fcntl(WIRE_MESSAGES_FD, F_SETFD, FD_CLOEXEC);
  fcntl(WIRE_CONTROL_FD, F_SETFD, FD_CLOEXEC);
  g_autoptr(JsonObject) options = read_options();
  if (!options)
    say_why(&of, "the options are not JSON");
  else if (!hear_children())
    say_why(&of, "no pipe: %s", g_strerror(errno));
  else if (start(&of, options)) {
    /* Only the engine may hold this end: its closing tells the tool that the engine is gone. */
    close(WIRE_MESSAGES_FD);
    wait_for_end(&of);
  }
  end_everything(&of);
  g_free(of.profile);
  display_clear(&of.display);
  return 0;
}
