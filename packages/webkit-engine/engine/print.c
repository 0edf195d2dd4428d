/* The page as PDF: GTK prints into a file, whose content is the answer. */
#include "print.h"

#include <glib/gstdio.h>
#include <math.h>

#include "../common/json.h"
#include "browser.h"

#define MM_PER_INCH 25.4
#define RANGES_MAX 100u

typedef struct printing {
  request *asked;
  char *path;
} printing;

static void end(printing *of) {
  g_unlink(of->path);
  g_free(of->path);
  g_free(of);
}

static void on_failed(WebKitPrintOperation *operation, GError *error, gpointer data) {
  (void)operation;
  printing *of = data;
  if (of->asked)
    answer_error(g_steal_pointer(&of->asked), "Page.printToPDF: %s", error->message);
}

static void on_finished(WebKitPrintOperation *operation, gpointer data) {
  printing *of = data;
  char *content = NULL;
  gsize bytes = 0;
  if (of->asked && g_file_get_contents(of->path, &content, &bytes, NULL) && bytes > 0) {
    g_autoptr(GBytes) answered = g_bytes_new_take(content, bytes);
    answer_bytes(of->asked, answered);
  } else if (of->asked)
    answer_error(of->asked, "Page.printToPDF: nothing was printed");
  end(of);
  g_object_unref(operation);
}

/* "1-3, 5" as GTK counts, from 0. FALSE when it cannot be read. */
static gboolean use_ranges(GtkPrintSettings *settings, const char *text) {
  g_auto(GStrv) parts = g_strsplit(text, ",", (int)RANGES_MAX);
  GtkPageRange ranges[RANGES_MAX];
  guint count = 0;
  for (char **part = parts; *part && count < RANGES_MAX; part++) {
    char *end_of_number = NULL;
    const gint64 first = g_ascii_strtoll(g_strstrip(*part), &end_of_number, 10);
    const gint64 last = *end_of_number == '-' ? g_ascii_strtoll(end_of_number + 1, &end_of_number, 10) : first;
    if (first < 1 || last < first || last > G_MAXINT || *end_of_number)
      return FALSE;
    ranges[count++] = (GtkPageRange){(int)first - 1, (int)last - 1};
  }
  gtk_print_settings_set_print_pages(settings, GTK_PRINT_PAGES_RANGES);
  gtk_print_settings_set_page_ranges(settings, ranges, (int)count);
  return TRUE;
}

static GtkPageSetup *page_setup(JsonObject *params) {
  const double width = json_number(params, "paperWidth", 8.5) * MM_PER_INCH;
  const double height = json_number(params, "paperHeight", 11) * MM_PER_INCH;
  g_autoptr(GtkPaperSize) size = gtk_paper_size_new_custom("page", "page", CLAMP(width, 10, 5000),
                                                           CLAMP(height, 10, 5000), GTK_UNIT_MM);
  GtkPageSetup *setup = gtk_page_setup_new();
  gtk_page_setup_set_paper_size(setup, size);
  gtk_page_setup_set_orientation(setup, json_flag(params, "landscape", FALSE) ? GTK_PAGE_ORIENTATION_LANDSCAPE
                                                                               : GTK_PAGE_ORIENTATION_PORTRAIT);
  const double margin_default = 0.4;
  gtk_page_setup_set_top_margin(setup, json_number(params, "marginTop", margin_default), GTK_UNIT_INCH);
  gtk_page_setup_set_bottom_margin(setup, json_number(params, "marginBottom", margin_default), GTK_UNIT_INCH);
  gtk_page_setup_set_left_margin(setup, json_number(params, "marginLeft", margin_default), GTK_UNIT_INCH);
  gtk_page_setup_set_right_margin(setup, json_number(params, "marginRight", margin_default), GTK_UNIT_INCH);
  return setup;
}

void print_to_pdf(page *of, request *asked) {
  g_autoptr(GtkPrintSettings) settings = gtk_print_settings_new();
  const char *ranges = json_string(asked->params, "pageRanges", "");
  if (*ranges && !use_ranges(settings, ranges)) {
    answer_error(asked, "Page.printToPDF: pageRanges must look like 1-3, 5");
    return;
  }
  static guint printed;
  printing *made = g_new0(printing, 1);
  made->asked = asked;
  made->path = g_strdup_printf("%s/tmp/print-%u.pdf", the_browser.profile, ++printed);
  g_autofree char *uri = g_filename_to_uri(made->path, NULL, NULL);
  gtk_print_settings_set_printer(settings, "Print to File");
  gtk_print_settings_set(settings, GTK_PRINT_SETTINGS_OUTPUT_FILE_FORMAT, "pdf");
  gtk_print_settings_set(settings, GTK_PRINT_SETTINGS_OUTPUT_URI, uri);
  gtk_print_settings_set_scale(settings, CLAMP(json_number(asked->params, "scale", 1), 0.1, 2) * 100);
  webkit_settings_set_print_backgrounds(webkit_web_view_get_settings(of->view),
                                        json_flag(asked->params, "printBackground", FALSE));
  g_autoptr(GtkPageSetup) setup = page_setup(asked->params);
  WebKitPrintOperation *operation = webkit_print_operation_new(of->view);
  webkit_print_operation_set_print_settings(operation, settings);
  webkit_print_operation_set_page_setup(operation, setup);
  g_signal_connect(operation, "failed", G_CALLBACK(on_failed), made);
  g_signal_connect(operation, "finished", G_CALLBACK(on_finished), made);
  webkit_print_operation_print(operation);
}
