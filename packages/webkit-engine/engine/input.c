#include "input.h"

#include <math.h>
#include <string.h>

#include "../common/json.h"
#include "browser.h"
#include "drag.h"
#include "keys.h"

#define WAITING_MAX 20000u
/* The protocol's bits for modifiers and for buttons that are held. */
enum { ALT = 1, CONTROL = 2, META = 4, SHIFT = 8 };
enum { HELD_LEFT = 1, HELD_RIGHT = 2, HELD_MIDDLE = 4 };

static void run_waiting(page *of);

static void end_step(page *of) {
  of->input.is_running = FALSE;
  run_waiting(of);
}

static void on_step_settled(page *of, gpointer data) {
  input_end_step(of, data);
}

static void refuse(page *of, request *asked, const char *why) {
  answer_error(asked, "%s: %s", asked->method, why);
  end_step(of);
}

static GdkModifierType state_of(gint64 modifiers, guint held) {
  guint state = 0;
  state |= modifiers & SHIFT ? GDK_SHIFT_MASK : 0;
  state |= modifiers & CONTROL ? GDK_CONTROL_MASK : 0;
  state |= modifiers & ALT ? GDK_MOD1_MASK : 0;
  state |= modifiers & META ? GDK_META_MASK : 0;
  state |= held & HELD_LEFT ? GDK_BUTTON1_MASK : 0;
  state |= held & HELD_MIDDLE ? GDK_BUTTON2_MASK : 0;
  state |= held & HELD_RIGHT ? GDK_BUTTON3_MASK : 0;
  return state;
}

void input_address(page *of, GdkEvent *event, gboolean is_key) {
  GdkSeat *seat = gdk_display_get_default_seat(gdk_display_get_default());
  GdkDevice *device = is_key ? gdk_seat_get_keyboard(seat) : gdk_seat_get_pointer(seat);
  event->any.window = g_object_ref(gtk_widget_get_window(GTK_WIDGET(of->view)));
  event->any.send_event = TRUE;
  gdk_event_set_device(event, device);
  gdk_event_set_source_device(event, device);
}

static void deliver(page *of, GdkEvent *event, gboolean is_key) {
  input_address(of, event, is_key);
  gtk_main_do_event(event);
  gdk_event_free(event);
}

void input_root_place(page *of, double x, double y, double *x_root, double *y_root) {
  int left = 0, top = 0;
  gdk_window_get_origin(gtk_widget_get_window(GTK_WIDGET(of->view)), &left, &top);
  *x_root = left + x;
  *y_root = top + y;
}

/* In whole pixels: WebKit rounds every event, and the sum of many moves would be off. */
void input_place(page *of, const request *asked) {
  of->input.x = floor(json_number(asked->params, "x", 0));
  of->input.y = floor(json_number(asked->params, "y", 0));
}

static void move_to(page *of, const request *asked) {
  GdkEvent *event = gdk_event_new(GDK_MOTION_NOTIFY);
  event->motion.x = of->input.x;
  event->motion.y = of->input.y;
  event->motion.state = state_of(json_integer(asked->params, "modifiers", 0), of->input.buttons);
  input_root_place(of, of->input.x, of->input.y, &event->motion.x_root, &event->motion.y_root);
  deliver(of, event, FALSE);
  of->input.has_open_move = of->input.buttons == 0;
}

static guint button_bit(const char *name) {
  if (strcmp(name, "left") == 0)
    return HELD_LEFT;
  if (strcmp(name, "right") == 0)
    return HELD_RIGHT;
  return strcmp(name, "middle") == 0 ? HELD_MIDDLE : 0;
}

static guint gdk_button(guint bit) {
  return bit == HELD_LEFT ? GDK_BUTTON_PRIMARY : bit == HELD_RIGHT ? GDK_BUTTON_SECONDARY : GDK_BUTTON_MIDDLE;
}

static GdkEventType press_type(gint64 click_count) {
  return click_count <= 1 ? GDK_BUTTON_PRESS : click_count == 2 ? GDK_2BUTTON_PRESS : GDK_3BUTTON_PRESS;
}

static void press_or_release(page *of, const request *asked, guint bit, gboolean is_press) {
  const gint64 clicks = json_integer(asked->params, "clickCount", 1);
  GdkEvent *event = gdk_event_new(is_press ? press_type(clicks) : GDK_BUTTON_RELEASE);
  event->button.x = of->input.x;
  event->button.y = of->input.y;
  event->button.button = gdk_button(bit);
  /* GDK gives the state before the event. */
  event->button.state = state_of(json_integer(asked->params, "modifiers", 0), of->input.buttons);
  input_root_place(of, of->input.x, of->input.y, &event->button.x_root, &event->button.y_root);
  of->input.buttons = is_press ? of->input.buttons | bit : of->input.buttons & ~bit;
  deliver(of, event, FALSE);
  of->input.has_open_move = FALSE;
}

void input_end_press(page *of) {
  const double outside = -1;
  GdkEvent *event = gdk_event_new(GDK_BUTTON_RELEASE);
  event->button.x = outside;
  event->button.y = outside;
  event->button.button = GDK_BUTTON_PRIMARY;
  event->button.state = GDK_BUTTON1_MASK;
  input_root_place(of, outside, outside, &event->button.x_root, &event->button.y_root);
  of->input.buttons = 0;
  deliver(of, event, FALSE);
}

/* How far WebKit scrolls for one step of a wheel depends on the size of the page. */
static double wheel_step(int page_pixels) {
  return floor(pow(page_pixels, 2.0 / 3.0));
}

static void turn_wheel(page *of, const request *asked) {
  GtkWidget *widget = GTK_WIDGET(of->view);
  const double step_x = wheel_step(gtk_widget_get_allocated_width(widget));
  const double step_y = wheel_step(gtk_widget_get_allocated_height(widget));
  GdkEvent *event = gdk_event_new(GDK_SCROLL);
  event->scroll.direction = GDK_SCROLL_SMOOTH;
  event->scroll.x = of->input.x;
  event->scroll.y = of->input.y;
  event->scroll.delta_x = json_number(asked->params, "deltaX", 0) / step_x;
  event->scroll.delta_y = json_number(asked->params, "deltaY", 0) / step_y;
  event->scroll.state = state_of(json_integer(asked->params, "modifiers", 0), of->input.buttons);
  input_root_place(of, of->input.x, of->input.y, &event->scroll.x_root, &event->scroll.y_root);
  deliver(of, event, FALSE);
}

static void run_mouse(page *of, request *asked);

static void on_frame_drawn(page *of, int code, const char *text, gpointer data) {
  (void)code, (void)text;
  of->input.has_open_move = FALSE;
  run_mouse(of, data);
}

static void run_mouse(page *of, request *asked) {
  const char *type = json_string(asked->params, "type", "");
  const guint bit = button_bit(json_string(asked->params, "button", "none"));
  if (strcmp(type, "mouseMoved") == 0) {
    if (of->input.has_open_move) {
      page_call(of, "Engine.nextFrame", "{}", on_frame_drawn, asked);
      return;
    }
    input_place(of, asked);
    move_to(of, asked);
    page_settle(of, on_step_settled, asked);
    return;
  }
  input_place(of, asked);
  if (strcmp(type, "mouseWheel") == 0)
    turn_wheel(of, asked);
  else if (bit == 0) {
    refuse(of, asked, "button must be left, middle or right");
    return;
  } else if (strcmp(type, "mousePressed") == 0 || strcmp(type, "mouseReleased") == 0)
    press_or_release(of, asked, bit, strcmp(type, "mousePressed") == 0);
  else {
    refuse(of, asked, "type must be mouseMoved, mousePressed, mouseReleased or mouseWheel");
    return;
  }
  page_settle(of, on_step_settled, asked);
}

static void insert(page *of, const char *text) {
  if (*text)
    webkit_web_view_execute_editing_command_with_argument(of->view, "InsertText", text);
}

static void run_key(page *of, request *asked) {
  const char *type = json_string(asked->params, "type", "");
  const char *key = json_string(asked->params, "key", "");
  const char *text = json_string(asked->params, "text", "");
  const gboolean is_up = strcmp(type, "keyUp") == 0;
  if (strcmp(type, "char") == 0) {
    insert(of, text);
    page_settle(of, on_step_settled, asked);
    return;
  }
  if (!is_up && strcmp(type, "keyDown") != 0 && strcmp(type, "rawKeyDown") != 0) {
    refuse(of, asked, "type must be keyDown, rawKeyDown, keyUp or char");
    return;
  }
  const guint value = keys_value(key);
  if (value == 0) {
    refuse(of, asked, "the key is not known");
    return;
  }
  GdkEvent *event = gdk_event_new(is_up ? GDK_KEY_RELEASE : GDK_KEY_PRESS);
  event->key.keyval = value;
  event->key.hardware_keycode = keys_place(json_string(asked->params, "code", ""));
  event->key.state = state_of(json_integer(asked->params, "modifiers", 0), of->input.buttons);
  deliver(of, event, TRUE);
  page_settle(of, on_step_settled, asked);
}

static void run(page *of, request *asked) {
  const gboolean is_drag = strcmp(asked->method, "Input.dispatchDragEvent") == 0;
  const gboolean is_mouse = strcmp(asked->method, "Input.dispatchMouseEvent") == 0;
  if (is_drag && !of->drag.is_running) {
    answer_unsupported(asked, "webkit drags what the page itself lets be dragged, and nothing from outside");
    end_step(of);
  } else if (of->drag.is_running && (is_drag || is_mouse))
    drag_step(of, asked);
  else if (is_mouse)
    run_mouse(of, asked);
  else if (strcmp(asked->method, "Input.dispatchKeyEvent") == 0)
    run_key(of, asked);
  else {
    insert(of, json_string(asked->params, "text", ""));
    page_settle(of, on_step_settled, asked);
  }
}

/* A step may end at once, hence a loop where a recursion would do too. */
static void run_waiting(page *of) {
  if (of->input.is_draining)
    return;
  of->input.is_draining = TRUE;
  request *asked;
  while (!of->input.is_running && (asked = g_queue_pop_head(&of->input.waiting))) {
    of->input.is_running = TRUE;
    run(of, asked);
  }
  of->input.is_draining = FALSE;
}

/*
 * WebKit sends one event of a kind at a time and keeps the next ones until the page has handled it. So that each
 * is answered when it has been handled, the next one is given to WebKit only then.
 */
static void enqueue(page *of, request *asked) {
  if (g_queue_get_length(&of->input.waiting) >= WAITING_MAX) {
    answer_error(asked, "%u input events are already waiting", WAITING_MAX);
    return;
  }
  g_queue_push_tail(&of->input.waiting, asked);
  run_waiting(of);
}

void input_key(page *of, request *asked) {
  enqueue(of, asked);
}

void input_mouse(page *of, request *asked) {
  enqueue(of, asked);
}

void input_insert_text(page *of, request *asked) {
  enqueue(of, asked);
}

void input_drag(page *of, request *asked) {
  enqueue(of, asked);
}

void input_end_step(page *of, request *asked) {
  answer_empty(asked);
  end_step(of);
}

/* On a display of our own the pointer is the tool's alone; where the display thinks it is does not count. */
static gboolean on_pointer_event(GtkWidget *view, GdkEvent *event, gpointer data) {
  (void)view, (void)data;
  switch (event->type) {
    case GDK_MOTION_NOTIFY:
    case GDK_ENTER_NOTIFY:
    case GDK_LEAVE_NOTIFY:
      return the_browser.is_headless && !event->any.send_event;
    default:
      return FALSE;
  }
}

void input_watch(page *of) {
  g_signal_connect(of->view, "event", G_CALLBACK(on_pointer_event), of);
  drag_watch(of);
}

void input_drop(page *of) {
  request *asked;
  drag_drop(of);
  while ((asked = g_queue_pop_head(&of->input.waiting)))
    answer_error(asked, "the page was closed");
}
