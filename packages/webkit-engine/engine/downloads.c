#include "downloads.h"

#include "../common/json.h"

static char *folder;

typedef struct download {
  char *guid;
  gboolean has_failed;
} download;

static void free_download(gpointer data) {
  download *of = data;
  g_free(of->guid);
  g_free(of);
}

static void progress(const download *of, WebKitDownload *source, const char *state) {
  const guint64 bytes = webkit_download_get_received_data_length(source);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "guid", of->guid);
  json_add_int(params, "totalBytes", (gint64)bytes);
  json_add_int(params, "receivedBytes", (gint64)bytes);
  json_add_string(params, "state", state);
  json_end_object(params);
  send_event(NULL, "Browser.downloadProgress", params->str);
}

static gboolean on_decide_destination(WebKitDownload *source, const char *suggested, gpointer data) {
  const download *of = data;
  if (!folder) {
    webkit_download_cancel(source);
    return TRUE;
  }
  g_mkdir_with_parents(folder, 0700);
  g_autofree char *path = g_build_filename(folder, of->guid, NULL);
  g_autofree char *uri = g_filename_to_uri(path, NULL, NULL);
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "frameId", "");
  json_add_string(params, "guid", of->guid);
  json_add_string(params, "url", webkit_uri_request_get_uri(webkit_download_get_request(source)));
  json_add_string(params, "suggestedFilename", suggested);
  json_end_object(params);
  send_event(NULL, "Browser.downloadWillBegin", params->str);
  webkit_download_set_destination(source, uri);
  return TRUE;
}

static void on_failed(WebKitDownload *source, GError *error, gpointer data) {
  (void)error;
  download *of = data;
  of->has_failed = TRUE;
  progress(of, source, "canceled");
}

static void on_finished(WebKitDownload *source, gpointer data) {
  const download *of = data;
  if (!of->has_failed)
    progress(of, source, "completed");
}

static void on_started(WebKitWebContext *context, WebKitDownload *source, gpointer data) {
  (void)context, (void)data;
  download *made = g_new0(download, 1);
  made->guid = g_uuid_string_random();
  g_object_set_data_full(G_OBJECT(source), "browser-engine-download", made, free_download);
  g_signal_connect(source, "decide-destination", G_CALLBACK(on_decide_destination), made);
  g_signal_connect(source, "failed", G_CALLBACK(on_failed), made);
  g_signal_connect(source, "finished", G_CALLBACK(on_finished), made);
}

void downloads_watch(WebKitWebContext *context) {
  g_signal_connect(context, "download-started", G_CALLBACK(on_started), NULL);
}

void downloads_set_behavior(page *of, request *asked) {
  (void)of;
  const gboolean is_allowed = g_str_has_prefix(json_string(asked->params, "behavior", ""), "allow");
  const char *path = json_string(asked->params, "downloadPath", NULL);
  g_free(folder);
  folder = is_allowed && path && g_path_is_absolute(path) ? g_strdup(path) : NULL;
  answer_empty(asked);
}
