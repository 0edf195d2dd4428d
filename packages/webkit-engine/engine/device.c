#include "device.h"

#include <string.h>

#include "../common/json.h"
#include "browser.h"

/* What WebKit asks about, by the names that pages use. */
static const char *const known_grants[] = {
    "geolocation", "notifications", "camera", "microphone", "clipboard-read", "storage-access", NULL};

static struct {
  GHashTable *granted;
  WebKitGeolocationPosition *position;
  gboolean is_watched;
} device;

static gboolean is_granted(const char *name) {
  return device.granted && g_hash_table_contains(device.granted, name);
}

static gboolean may(WebKitPermissionRequest *asked) {
  if (WEBKIT_IS_GEOLOCATION_PERMISSION_REQUEST(asked))
    return is_granted("geolocation");
  if (WEBKIT_IS_NOTIFICATION_PERMISSION_REQUEST(asked))
    return is_granted("notifications");
  if (WEBKIT_IS_CLIPBOARD_PERMISSION_REQUEST(asked))
    return is_granted("clipboard-read");
  if (WEBKIT_IS_WEBSITE_DATA_ACCESS_PERMISSION_REQUEST(asked))
    return is_granted("storage-access");
  if (!WEBKIT_IS_USER_MEDIA_PERMISSION_REQUEST(asked))
    return FALSE;
  WebKitUserMediaPermissionRequest *media = WEBKIT_USER_MEDIA_PERMISSION_REQUEST(asked);
  return (!webkit_user_media_permission_is_for_audio_device(media) || is_granted("microphone")) &&
         (!webkit_user_media_permission_is_for_video_device(media) || is_granted("camera")) &&
         !webkit_user_media_permission_is_for_display_device(media);
}

static gboolean on_permission_asked(WebKitWebView *view, WebKitPermissionRequest *asked, gpointer data) {
  (void)view, (void)data;
  if (may(asked))
    webkit_permission_request_allow(asked);
  else
    webkit_permission_request_deny(asked);
  return TRUE;
}

static gboolean on_state_asked(WebKitWebView *view, WebKitPermissionStateQuery *asked, gpointer data) {
  (void)view, (void)data;
  const char *name = webkit_permission_state_query_get_name(asked);
  webkit_permission_state_query_finish(
      asked, is_granted(name) ? WEBKIT_PERMISSION_STATE_GRANTED : WEBKIT_PERMISSION_STATE_PROMPT);
  return TRUE;
}

void device_watch_page(page *of) {
  g_signal_connect(of->view, "permission-request", G_CALLBACK(on_permission_asked), of);
  g_signal_connect(of->view, "query-permission-state", G_CALLBACK(on_state_asked), of);
}

void device_set_permission(page *of, request *asked) {
  (void)of;
  const char *name = json_string(json_object(asked->params, "permission"), "name", "");
  const gboolean is_grant = strcmp(json_string(asked->params, "setting", ""), "granted") == 0;
  if (!g_strv_contains(known_grants, name)) {
    answer_unsupported(asked, "webkit has no permission \"%s\"", name);
    return;
  }
  if (!device.granted)
    device.granted = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  if (is_grant)
    g_hash_table_add(device.granted, g_strdup(name));
  else
    g_hash_table_remove(device.granted, name);
  answer_empty(asked);
}

void device_reset_grants(page *of, request *asked) {
  (void)of;
  g_clear_pointer(&device.granted, g_hash_table_unref);
  answer_empty(asked);
}

/* Nobody but the tool says where the device is; until it does, that is not known. */
static void tell_position(void) {
  WebKitGeolocationManager *manager = webkit_web_context_get_geolocation_manager(the_browser.context);
  if (!device.is_watched)
    return;
  if (device.position)
    webkit_geolocation_manager_update_position(manager, device.position);
  else
    webkit_geolocation_manager_failed(manager, "the location is not known");
}

static gboolean on_location_wanted(WebKitGeolocationManager *manager, gpointer data) {
  (void)manager, (void)data;
  device.is_watched = TRUE;
  tell_position();
  return TRUE;
}

static void on_location_not_wanted(WebKitGeolocationManager *manager, gpointer data) {
  (void)manager, (void)data;
  device.is_watched = FALSE;
}

void device_watch(WebKitWebContext *context) {
  WebKitGeolocationManager *manager = webkit_web_context_get_geolocation_manager(context);
  g_signal_connect(manager, "start", G_CALLBACK(on_location_wanted), NULL);
  g_signal_connect(manager, "stop", G_CALLBACK(on_location_not_wanted), NULL);
}

static void set_position(WebKitGeolocationPosition *position) {
  g_clear_pointer(&device.position, webkit_geolocation_position_free);
  device.position = position;
  tell_position();
}

void device_set_location(page *of, request *asked) {
  (void)of;
  const double latitude = json_number(asked->params, "latitude", 0);
  const double longitude = json_number(asked->params, "longitude", 0);
  const double accuracy = json_number(asked->params, "accuracy", 10);
  if (ABS(latitude) > 90 || ABS(longitude) > 180 || accuracy < 0) {
    answer_error(asked, "latitude, longitude or accuracy is out of range");
    return;
  }
  set_position(webkit_geolocation_position_new(latitude, longitude, accuracy));
  answer_empty(asked);
}

void device_clear_location(page *of, request *asked) {
  (void)of;
  set_position(NULL);
  answer_empty(asked);
}

/* GTK has one setting for all pages. */
void device_set_media(page *of, request *asked) {
  (void)of;
  JsonArray *features = json_array(asked->params, "features");
  for (guint index = 0; features && index < json_array_get_length(features); index++) {
    JsonNode *each = json_array_get_element(features, index);
    JsonObject *feature = JSON_NODE_HOLDS_OBJECT(each) ? json_node_get_object(each) : NULL;
    if (strcmp(json_string(feature, "name", ""), "prefers-color-scheme") != 0) {
      answer_unsupported(asked, "webkit emulates prefers-color-scheme only");
      return;
    }
    g_object_set(gtk_settings_get_default(), "gtk-application-prefer-dark-theme",
                 strcmp(json_string(feature, "value", ""), "dark") == 0, NULL);
  }
  if (*json_string(asked->params, "media", ""))
    answer_unsupported(asked, "webkit does not emulate other media");
  else
    answer_empty(asked);
}

void device_set_user_agent(page *of, request *asked) {
  const char *agent = json_string(asked->params, "userAgent", "");
  webkit_settings_set_user_agent(webkit_web_view_get_settings(of->view), *agent ? agent : NULL);
  answer_empty(asked);
}
