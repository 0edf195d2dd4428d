/* A display of the engine's own that nobody sees: an Xvfb which lets in only those who know its cookie. */
#ifndef WEBKIT_ENGINE_DISPLAY_H
#define WEBKIT_ENGINE_DISPLAY_H

#include <sys/types.h>

typedef struct display_server {
  pid_t process;
  char name[16];
  char *authority;
} display_server;

/* Starts it and waits until it serves. Returns what went wrong, or NULL; the caller frees it. */
char *display_start(display_server *server, const char *folder, int complaints_fd, int wait_ms_max);
/* Asks it to end; the caller waits for it. */
void display_stop(const display_server *server);
/* Removes what a killed one leaves behind. */
void display_remove_files(const display_server *server);
void display_clear(display_server *server);

#endif
