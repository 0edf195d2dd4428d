/* Pictures: WebKit draws the page once more, as a whole or the part in view, and what was asked for is cut out. */
#include "screenshot.h"

#include <math.h>
#include <string.h>

#include "../common/json.h"

/* A larger picture cannot be drawn at once. */
#define SIDE_PIXELS_MAX 16000

typedef struct shot {
  request *asked;
  gboolean is_jpeg;
  int quality;
  double scale;
  /* In pixels of the document; without a size: all that is in view. */
  cairo_rectangle_int_t area;
  cairo_rectangle_int_t view;
  gboolean is_whole;
} shot;

static void fail(shot *of, const char *why) {
  answer_error(of->asked, "Page.captureScreenshot: %s", why);
  g_free(of);
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

static void on_metrics(page *of, int code, const char *text, gpointer data) {
  shot *wanted = data;
  g_autoptr(JsonObject) metrics = code == 0 ? json_parse_object(text, -1) : NULL;
  if (!metrics) {
    fail(wanted, text);
    return;
  }
  wanted->view = rectangle(json_object(metrics, "cssLayoutViewport"), "pageX", "pageY", "clientWidth",
                           "clientHeight");
  cairo_rectangle_int_t whole = rectangle(json_object(metrics, "cssContentSize"), "x", "y", "width", "height");
  if (wanted->area.width == 0 || wanted->area.height == 0)
    wanted->area = wanted->view;
  wanted->is_whole = !lies_within(&wanted->area, &wanted->view);
  if (wanted->is_whole && (whole.width > SIDE_PIXELS_MAX || whole.height > SIDE_PIXELS_MAX)) {
    fail(wanted, "the page is too large for one picture; scroll to the part that is wanted");
    return;
  }
  cairo_region_t *outer = cairo_region_create_rectangle(wanted->is_whole ? &whole : &wanted->view);
  cairo_region_intersect_rectangle(outer, &wanted->area);
  cairo_region_get_extents(outer, &wanted->area);
  cairo_region_destroy(outer);
  if (wanted->area.width == 0 || wanted->area.height == 0) {
    fail(wanted, "what was asked for lies outside of the page");
    return;
  }
  webkit_web_view_get_snapshot(
      of->view, wanted->is_whole ? WEBKIT_SNAPSHOT_REGION_FULL_DOCUMENT : WEBKIT_SNAPSHOT_REGION_VISIBLE,
      WEBKIT_SNAPSHOT_OPTIONS_NONE, of->closing, on_drawn, wanted);
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
