/* Pictures: WebKit draws the page once more, as a whole or the part in view, and what was asked for is cut out. */
#include "screenshot.h"

#include <math.h>
#include <string.h>

#include "../common/json.h"

/* A document that is larger cannot be drawn as a whole, nor a picture be made that is. */
#define SIDE_PIXELS_MAX 32000

typedef struct shot {
  request *asked;
  gboolean is_jpeg;
  int quality;
  double scale;
  /* In pixels of the document; without a size: all that is in view. */
  cairo_rectangle_int_t area;
  cairo_rectangle_int_t view;
  gboolean is_whole;
  /* What the page is like again after the picture, for one that was made larger for it. */
  gboolean is_stretched;
  cairo_rectangle_int_t before;
} shot;

static void fail(shot *of, const char *why) {
  answer_error(of->asked, "%s", why);
  g_free(of);
}

static char *place(int x, int y) {
  return g_strdup_printf("{\"x\":%d,\"y\":%d}", x, y);
}

static void restore(const shot *of) {
  page *from = of->is_stretched ? page_of_session(of->asked->session) : NULL;
  if (!from)
    return;
  g_autofree char *scrolled = place(of->before.x, of->before.y);
  page_resize(from, of->before.width, of->before.height);
  page_call(from, "Engine.scrollTo", scrolled, NULL, NULL);
}

static GdkPixbuf *cut_out(const shot *of, cairo_surface_t *drawn) {
  const int left = of->area.x - (of->is_whole ? 0 : of->view.x);
  const int top = of->area.y - (of->is_whole ? 0 : of->view.y);
  g_autoptr(GdkPixbuf) cut = gdk_pixbuf_get_from_surface(drawn, left, top, of->area.width, of->area.height);
  if (!cut || of->scale == 1)
    return g_steal_pointer(&cut);
  const int width = MAX(1, (int)lround(of->area.width * of->scale));
  const int height = MAX(1, (int)lround(of->area.height * of->scale));
  return gdk_pixbuf_scale_simple(cut, width, height, GDK_INTERP_BILINEAR);
}

static gboolean encode(const shot *of, GdkPixbuf *picture, char **bytes, gsize *length, GError **error) {
  g_autofree char *quality = g_strdup_printf("%d", of->quality);
  /* Level 1 of 9 is several times as quick, for files that are a little larger. */
  return of->is_jpeg
             ? gdk_pixbuf_save_to_buffer(picture, bytes, length, "jpeg", error, "quality", quality, NULL)
             : gdk_pixbuf_save_to_buffer(picture, bytes, length, "png", error, "compression", "1", NULL);
}

static void on_drawn(GObject *view, GAsyncResult *result, gpointer data) {
  shot *of = data;
  restore(of);
  g_autoptr(GError) error = NULL;
  cairo_surface_t *drawn = webkit_web_view_get_snapshot_finish(WEBKIT_WEB_VIEW(view), result, &error);
  if (!drawn) {
    fail(of, error->message);
    return;
  }
  g_autoptr(GdkPixbuf) picture = cut_out(of, drawn);
  cairo_surface_destroy(drawn);
  char *bytes = NULL;
  gsize length = 0;
  if (!picture || !encode(of, picture, &bytes, &length, &error)) {
    fail(of, error ? error->message : "nothing was drawn");
    return;
  }
  g_autoptr(GBytes) content = g_bytes_new_take(bytes, length);
  answer_bytes(of->asked, content);
  g_free(of);
}

static cairo_rectangle_int_t rectangle(JsonObject *from, const char *x, const char *y, const char *width,
                                       const char *height) {
  const double left = json_number(from, x, 0);
  const double top = json_number(from, y, 0);
  const double limit = 1e6;
  return (cairo_rectangle_int_t){
      (int)CLAMP(floor(left), 0, limit), (int)CLAMP(floor(top), 0, limit),
      (int)CLAMP(ceil(json_number(from, width, 0)), 0, limit),
      (int)CLAMP(ceil(json_number(from, height, 0)), 0, limit)};
}

static gboolean lies_within(const cairo_rectangle_int_t *inner, const cairo_rectangle_int_t *outer) {
  return inner->x >= outer->x && inner->y >= outer->y && inner->x + inner->width <= outer->x + outer->width &&
         inner->y + inner->height <= outer->y + outer->height;
}

static gboolean is_too_large(const cairo_rectangle_int_t *of) {
  return of->width > SIDE_PIXELS_MAX || of->height > SIDE_PIXELS_MAX;
}

/* What was asked for, as far as there is anything to draw. */
static void draw(page *of, shot *wanted, cairo_rectangle_int_t *outer) {
  cairo_region_t *both = cairo_region_create_rectangle(outer);
  cairo_region_intersect_rectangle(both, &wanted->area);
  cairo_region_get_extents(both, &wanted->area);
  cairo_region_destroy(both);
  if (wanted->area.width == 0 || wanted->area.height == 0) {
    restore(wanted);
    fail(wanted, "what was asked for lies outside of the page");
    return;
  }
  webkit_web_view_get_snapshot(
      of->view, wanted->is_whole ? WEBKIT_SNAPSHOT_REGION_FULL_DOCUMENT : WEBKIT_SNAPSHOT_REGION_VISIBLE,
      WEBKIT_SNAPSHOT_OPTIONS_NONE, of->closing, on_drawn, wanted);
}

static gboolean read_metrics(shot *wanted, int code, const char *text, cairo_rectangle_int_t *whole) {
  g_autoptr(JsonObject) metrics = code == 0 ? json_parse_object(text, -1) : NULL;
  if (!metrics)
    return FALSE;
  wanted->view = rectangle(json_object(metrics, "cssLayoutViewport"), "pageX", "pageY", "clientWidth",
                           "clientHeight");
  *whole = rectangle(json_object(metrics, "cssContentSize"), "x", "y", "width", "height");
  return TRUE;
}

static void on_stretched(page *of, int code, const char *text, gpointer data) {
  shot *wanted = data;
  cairo_rectangle_int_t whole;
  if (read_metrics(wanted, code, text, &whole))
    draw(of, wanted, &wanted->view);
  else {
    restore(wanted);
    fail(wanted, text);
  }
}

/* A document too large to be drawn is shown in a window as large as the picture for a moment. */
static void stretch(page *of, shot *wanted) {
  wanted->is_stretched = TRUE;
  wanted->before = wanted->view;
  wanted->before.width = gtk_widget_get_allocated_width(GTK_WIDGET(of->view));
  wanted->before.height = gtk_widget_get_allocated_height(GTK_WIDGET(of->view));
  g_autofree char *scrolled = place(wanted->area.x, wanted->area.y);
  page_resize(of, MAX(wanted->before.width, wanted->area.width), wanted->area.height);
  page_call(of, "Engine.scrollTo", scrolled, on_stretched, wanted);
}

static void on_metrics(page *of, int code, const char *text, gpointer data) {
  shot *wanted = data;
  cairo_rectangle_int_t whole;
  if (!read_metrics(wanted, code, text, &whole)) {
    fail(wanted, text);
    return;
  }
  if (wanted->area.width == 0 || wanted->area.height == 0)
    wanted->area = wanted->view;
  const gboolean is_in_view = lies_within(&wanted->area, &wanted->view);
  wanted->is_whole = !is_in_view && !is_too_large(&whole);
  if (is_in_view || wanted->is_whole)
    draw(of, wanted, wanted->is_whole ? &whole : &wanted->view);
  else if (is_too_large(&wanted->area))
    fail(wanted, "a picture has at most " G_STRINGIFY(SIDE_PIXELS_MAX) " pixels on a side");
  else
    stretch(of, wanted);
}

void screenshot_capture(page *of, request *asked) {
  const char *format = json_string(asked->params, "format", "png");
  JsonObject *clip = json_object(asked->params, "clip");
  if (strcmp(format, "png") != 0 && strcmp(format, "jpeg") != 0) {
    answer_unsupported(asked, "webkit makes pictures as png or jpeg, not as %s", format);
    return;
  }
  shot *wanted = g_new0(shot, 1);
  wanted->asked = asked;
  wanted->is_jpeg = strcmp(format, "jpeg") == 0;
  wanted->quality = (int)CLAMP(json_integer(asked->params, "quality", 80), 0, 100);
  wanted->scale = CLAMP(json_number(clip, "scale", 1), 0.01, 4);
  if (clip)
    wanted->area = rectangle(clip, "x", "y", "width", "height");
  page_call(of, "Page.getLayoutMetrics", "{}", on_metrics, wanted);
}
