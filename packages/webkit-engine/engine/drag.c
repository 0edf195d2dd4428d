#include "drag.h"

#include <string.h>

#include "../common/json.h"
#include "input.h"

/* How long a step may take on its way through the display and the page. */
#define STEP_MS_MAX 100u
/* The first step waits for the picture of what is dragged, the last one for the drop. */
#define SLOW_STEP_MS_MAX 1000u
/* A place counts once the page has said what it would do there; the second time it has. */
#define ROUNDS 2u

static void put(page *of, GdkEvent *event) {
  input_address(of, event, FALSE);
  /* A drag takes its events where GDK takes those of the display, one step before GTK. */
  gdk_event_put(event);
  gdk_event_free(event);
}

static void put_motion(page *of) {
  GdkEvent *event = gdk_event_new(GDK_MOTION_NOTIFY);
  event->motion.x = of->input.x;
  event->motion.y = of->input.y;
  event->motion.state = GDK_BUTTON1_MASK;
  input_root_place(of, of->input.x, of->input.y, &event->motion.x_root, &event->motion.y_root);
  /* In the end WebKit asks the display where the pointer is. */
  gdk_device_warp(gdk_seat_get_pointer(gdk_display_get_default_seat(gdk_display_get_default())),
                  gtk_widget_get_screen(GTK_WIDGET(of->view)), (int)event->motion.x_root,
                  (int)event->motion.y_root);
  put(of, event);
}

static void put_release(page *of) {
  GdkEvent *event = gdk_event_new(GDK_BUTTON_RELEASE);
  event->button.x = of->input.x;
  event->button.y = of->input.y;
  event->button.button = GDK_BUTTON_PRIMARY;
  event->button.state = GDK_BUTTON1_MASK;
  input_root_place(of, of->input.x, of->input.y, &event->button.x_root, &event->button.y_root);
  put(of, event);
}

static void take_round(page *of);

static gboolean on_displayed(gpointer data) {
  g_autoptr(page) of = data;
  if (!of->drag.asked)
    return G_SOURCE_REMOVE;
  take_round(of);
  return G_SOURCE_REMOVE;
}

/* The page's answer is on its way to the display; once it is back, GDK can take the next place. */
static void on_round_settled(page *of, gpointer data) {
  (void)data;
  gdk_display_sync(gdk_display_get_default());
  g_idle_add_full(G_PRIORITY_LOW, on_displayed, page_ref(of), NULL);
}

static void end_round(page *of) {
  if (!of->drag.asked || of->drag.timer == 0)
    return;
  g_clear_handle_id(&of->drag.timer, g_source_remove);
  page_settle(of, on_round_settled, NULL);
}

static gboolean on_round_late(gpointer data) {
  page *of = data;
  of->drag.timer = 0;
  page_settle(of, on_round_settled, NULL);
  return G_SOURCE_REMOVE;
}

static gboolean is_drop(const request *asked) {
  const char *type = json_string(asked->params, "type", "");
  return strcmp(type, "drop") == 0 || strcmp(type, "mouseReleased") == 0;
}

static void take_round(page *of) {
  if (of->drag.rounds_left > 0 && of->drag.is_running) {
    of->drag.rounds_left--;
    of->drag.timer = g_timeout_add(of->drag.has_moved ? STEP_MS_MAX : SLOW_STEP_MS_MAX, on_round_late, of);
    put_motion(of);
  } else if (is_drop(of->drag.asked) && !of->drag.is_released && of->drag.is_running) {
    of->drag.is_released = TRUE;
    of->drag.timer = g_timeout_add(SLOW_STEP_MS_MAX, on_round_late, of);
    put_release(of);
  } else {
    if (is_drop(of->drag.asked))
      input_end_press(of);
    input_end_step(of, g_steal_pointer(&of->drag.asked));
  }
}

void drag_step(page *of, request *asked) {
  input_place(of, asked);
  of->drag.asked = asked;
  of->drag.rounds_left = ROUNDS;
  of->drag.is_released = FALSE;
  take_round(of);
}

static void on_begin(GtkWidget *view, GdkDragContext *context, gpointer data) {
  (void)view, (void)context;
  page *of = data;
  of->drag.is_running = TRUE;
  of->drag.has_moved = FALSE;
  /* What is dragged stays with GTK; the tool gives the empty data back with each step. */
  if (of->drag.is_told)
    page_event(of, "Input.dragIntercepted",
               "{\"data\":{\"items\":[],\"files\":[],\"dragOperationsMask\":1}}");
}

static gboolean on_motion(GtkWidget *view, GdkDragContext *context, int x, int y, guint time, gpointer data) {
  (void)view, (void)context, (void)x, (void)y, (void)time;
  page *of = data;
  of->drag.has_moved = TRUE;
  end_round(of);
  return FALSE;
}

static void on_end(GtkWidget *view, GdkDragContext *context, gpointer data) {
  (void)view, (void)context;
  page *of = data;
  of->drag.is_running = FALSE;
  end_round(of);
}

void drag_watch(page *of) {
  g_signal_connect_after(of->view, "drag-begin", G_CALLBACK(on_begin), of);
  g_signal_connect(of->view, "drag-motion", G_CALLBACK(on_motion), of);
  g_signal_connect_after(of->view, "drag-end", G_CALLBACK(on_end), of);
}

void drag_drop(page *of) {
  g_clear_handle_id(&of->drag.timer, g_source_remove);
  if (of->drag.asked)
    answer_error(g_steal_pointer(&of->drag.asked), "the page was closed");
}

void drag_intercept(page *of, request *asked) {
  of->drag.is_told = json_flag(asked->params, "enabled", FALSE);
  answer_empty(asked);
}
