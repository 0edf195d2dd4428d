#include "policy.h"

#include <string.h>

#include "../common/json.h"

/* Addresses with another scheme are for other applications, and there are none here. */
static const char *const own_schemes[] = {"http", "https", "about", "data", "blob", "file", "javascript",
                                          "webkit-pdfjs-viewer", NULL};

static gboolean is_own_scheme(const char *uri) {
  g_autofree char *scheme = g_uri_parse_scheme(uri);
  return scheme && g_strv_contains(own_schemes, scheme);
}

static void on_popup_useless(page *of, int code, const char *text, gpointer data) {
  (void)of, (void)code, (void)text;
  g_autoptr(page) popup = data;
  page_close(popup);
}

/*
 * The page learns of it in the way of the Navigation API, which WebKit itself does not have yet. A window that was
 * opened for nothing else is closed, and the page that opened it is told: in the window nobody listens yet.
 */
static void refuse_application(page *of, const char *uri) {
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "url", uri);
  json_end_object(params);
  page *opener = of->navigation.loader == 0 ? page_of_target(of->opener) : NULL;
  if (opener)
    page_call(opener, "Engine.refused", params->str, on_popup_useless, page_ref(of));
  else
    page_call(of, "Engine.refused", params->str, NULL, NULL);
}

static gboolean is_attachment(WebKitURIResponse *response) {
  SoupMessageHeaders *headers = webkit_uri_response_get_http_headers(response);
  g_autofree char *disposition = NULL;
  return headers && soup_message_headers_get_content_disposition(headers, &disposition, NULL) && disposition &&
         g_ascii_strcasecmp(disposition, "attachment") == 0;
}

/* An error without a page to show for it, which would look like a success; or the proxy's page, not the site's. */
static gboolean is_empty_error(WebKitURIResponse *response) {
  if (webkit_uri_response_get_status_code(response) == 407)
    return TRUE;
  SoupMessageHeaders *headers = webkit_uri_response_get_http_headers(response);
  const char *length = headers ? soup_message_headers_get_one(headers, "Content-Length") : NULL;
  return webkit_uri_response_get_status_code(response) >= 400 && g_strcmp0(length, "0") == 0;
}

static void decide_response(page *of, WebKitResponsePolicyDecision *decision) {
  WebKitURIResponse *response = webkit_response_policy_decision_get_response(decision);
  const gboolean is_main = webkit_response_policy_decision_is_main_frame_main_resource(decision);
  if (is_main && is_empty_error(response)) {
    of->navigation.was_empty = TRUE;
    webkit_policy_decision_ignore(WEBKIT_POLICY_DECISION(decision));
    return;
  }
  const gboolean has_no_content = webkit_uri_response_get_status_code(response) == 204;
  if (!has_no_content &&
      (is_attachment(response) || !webkit_response_policy_decision_is_mime_type_supported(decision))) {
    of->navigation.was_download |= is_main;
    webkit_policy_decision_download(WEBKIT_POLICY_DECISION(decision));
  } else
    webkit_policy_decision_use(WEBKIT_POLICY_DECISION(decision));
}

static void decide(page *of, WebKitPolicyDecision *decision) {
  if (WEBKIT_IS_RESPONSE_POLICY_DECISION(decision)) {
    decide_response(of, WEBKIT_RESPONSE_POLICY_DECISION(decision));
    return;
  }
  WebKitNavigationAction *action =
      webkit_navigation_policy_decision_get_navigation_action(WEBKIT_NAVIGATION_POLICY_DECISION(decision));
  const char *uri = webkit_uri_request_get_uri(webkit_navigation_action_get_request(action));
  of->navigation.questions++;
  if (uri && *uri && !is_own_scheme(uri)) {
    refuse_application(of, uri);
    webkit_policy_decision_ignore(decision);
  } else
    webkit_policy_decision_use(decision);
}

static gboolean on_decide(WebKitWebView *view, WebKitPolicyDecision *decision, WebKitPolicyDecisionType type,
                          gpointer data) {
  (void)view, (void)type;
  page *of = data;
  if (of->is_held)
    g_ptr_array_add(of->held_decisions, g_object_ref(decision));
  else
    decide(of, decision);
  return TRUE;
}

void policy_release(page *of) {
  g_autoptr(GPtrArray) held = g_steal_pointer(&of->held_decisions);
  of->held_decisions = g_ptr_array_new_with_free_func(g_object_unref);
  for (guint index = 0; index < held->len; index++)
    decide(of, g_ptr_array_index(held, index));
}

void policy_watch(page *of) {
  g_signal_connect(of->view, "decide-policy", G_CALLBACK(on_decide), of);
}
