/* One page: a web view in a window of its own, and what the tool and the page's process know of each other. */
#ifndef WEBKIT_ENGINE_PAGE_H
#define WEBKIT_ENGINE_PAGE_H

#include <gtk/gtk.h>
#include <webkit2/webkit2.h>

#include "messages.h"

typedef struct input_queue {
  /* Of request: what waits while one is on its way through the page. */
  GQueue waiting;
  gboolean is_running;
  gboolean is_draining;
  /* WebKit holds back the next pointer move until the page has been drawn after the last one. */
  gboolean has_open_move;
  guint buttons;
  double x;
  double y;
} input_queue;

/* The page's own drag-and-drop: GTK carries what is dragged, and the page hears of it by way of the display. */
typedef struct drag {
  gboolean is_running;
  /* The display has taken it at least one step along. */
  gboolean has_moved;
  /* The tool wants to hear of drags, and moves them on itself. */
  gboolean is_told;
  request *asked;
  guint rounds_left;
  gboolean is_released;
  guint timer;
} drag;

typedef struct file_choice {
  gboolean is_intercepted;
  /* The chooser that the page has opened. */
  WebKitFileChooserRequest *open;
  /* Files for the next one, and the request that brought them. */
  request *asked;
  char **paths;
} file_choice;

typedef struct navigation {
  guint loaders;
  /* The document that is there, and the one that is on its way (0 for none). */
  guint loader;
  guint next_loader;
  char *committed_uri;
  /* The document has been loaded, and the tool has not been told yet. */
  gboolean is_load_due;
  /* The Page.navigate that waits for its document. */
  request *asked;
  /* It names a place within the document that is there. */
  gboolean is_step;
  /* WebKit has begun with it; until then, what is given up is what was under way before. */
  gboolean has_begun;
  /* Looks after a document that does not let itself be left. */
  guint patience;
  gboolean is_heard;
  /* Why WebKit is about to give up the loading, where it would not know itself. */
  gboolean was_blocked;
  gboolean was_download;
  gboolean was_empty;
  /* Counts the questions of the page whether it may go somewhere. */
  guint questions;
} navigation;

typedef struct prepared_command {
  char *method;
  char *params;
} prepared_command;

typedef struct page {
  gatomicrefcount references;
  char *target;
  char *session;
  /* The target that opened it, or NULL. */
  char *opener;
  GtkWidget *window;
  WebKitWebView *view;
  GCancellable *closing;
  gboolean is_closed;
  gboolean is_crashed;
  /* The page's process has said that it has this page; until then, what is meant for it waits. */
  gboolean is_connected;
  GQueue unsent;
  gint64 process;
  /* Where the document that is on its way will be, if that is another process; else 0. */
  gint64 next_process;
  guint calls_open;
  /* A popup loads nothing until the tool has prepared it. */
  gboolean is_held;
  GPtrArray *held_decisions;
  /* Of prepared_command: what a process that takes the page over has to be told first. */
  GPtrArray *prepared;
  navigation navigation;
  input_queue input;
  drag drag;
  file_choice files;
  WebKitScriptDialog *dialog;
  GHashTable *resources;
  GQueue resource_order;
} page;

/* code 0: text is the result as JSON; otherwise the page's process has refused, or is gone, and text says why. */
typedef void (*page_reply)(page *of, int code, const char *text, gpointer data);
typedef void (*page_settled)(page *of, gpointer data);

page *page_open(page *opener);
/* Frees what the page uses; the tool is told that it is gone. */
void page_close(page *closed);
page *page_ref(page *of);
void page_unref(page *of);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(page, page_unref)

page *page_of_session(const char *session);
page *page_of_target(const char *target);
/* The page that a process of pages knows under this number, or the one that is likely to move there. */
page *page_of_number(guint64 number);
page *page_any(void);

/* Asks the page's process. The reply always comes, at the latest when the page closes. */
void page_call(page *of, const char *method, const char *params, page_reply on_reply, gpointer data);
/* Sends what waited for the process to come up, or ends it where none will. */
void page_send_waiting(page *of);
/*
 * Calls back once the page has handled all input that was sent to it so far, and whatever that has put in line
 * right away: the sending of a form, the start of a navigation.
 */
void page_settle(page *of, page_settled on_settled, gpointer data);
/* Answers a request once the page has settled. */
void page_settle_and_answer(page *of, request *asked);
void page_resize(page *of, int width, int height);
void page_event(page *of, const char *method, const char *params);

void page_forward(page *of, request *asked);
void page_evaluate(page *of, request *asked);
void page_acknowledge(page *of, request *asked);
void page_bring_to_front(page *of, request *asked);
void page_crash(page *of, request *asked);
void page_prepare(page *of, request *asked);
void page_run(page *of, request *asked);
void page_set_metrics(page *of, request *asked);

#endif
