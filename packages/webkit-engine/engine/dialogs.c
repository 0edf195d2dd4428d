#include "dialogs.h"

#include "../common/json.h"

static const char *kind_of(WebKitScriptDialog *dialog) {
  switch (webkit_script_dialog_get_dialog_type(dialog)) {
    case WEBKIT_SCRIPT_DIALOG_ALERT:
      return "alert";
    case WEBKIT_SCRIPT_DIALOG_CONFIRM:
      return "confirm";
    case WEBKIT_SCRIPT_DIALOG_PROMPT:
      return "prompt";
    case WEBKIT_SCRIPT_DIALOG_BEFORE_UNLOAD_CONFIRM:
      return "beforeunload";
  }
  return "alert";
}

/* The page stands still while the dialog is kept, and goes on once it is closed. */
static gboolean on_dialog(WebKitWebView *view, WebKitScriptDialog *dialog, gpointer data) {
  page *of = data;
  dialogs_drop(of);
  of->dialog = webkit_script_dialog_ref(dialog);
  const gboolean is_prompt = webkit_script_dialog_get_dialog_type(dialog) == WEBKIT_SCRIPT_DIALOG_PROMPT;
  g_autoptr(GString) params = g_string_new(NULL);
  json_begin_object(params, NULL);
  json_add_string(params, "url", webkit_web_view_get_uri(view));
  json_add_string(params, "message", webkit_script_dialog_get_message(dialog));
  json_add_string(params, "type", kind_of(dialog));
  json_add_bool(params, "hasBrowserHandler", FALSE);
  if (is_prompt)
    json_add_string(params, "defaultPrompt", webkit_script_dialog_prompt_get_default_text(dialog));
  json_end_object(params);
  page_event(of, "Page.javascriptDialogOpening", params->str);
  return TRUE;
}

static void close_dialog(page *of) {
  WebKitScriptDialog *dialog = g_steal_pointer(&of->dialog);
  webkit_script_dialog_close(dialog);
  webkit_script_dialog_unref(dialog);
}

void dialogs_watch(page *of) {
  g_signal_connect(of->view, "script-dialog", G_CALLBACK(on_dialog), of);
}

void dialogs_drop(page *of) {
  if (of->dialog)
    close_dialog(of);
}

void dialog_answer(page *of, request *asked) {
  if (!of->dialog) {
    answer_error(asked, "No dialog is showing");
    return;
  }
  const gboolean is_accepted = json_flag(asked->params, "accept", FALSE);
  switch (webkit_script_dialog_get_dialog_type(of->dialog)) {
    case WEBKIT_SCRIPT_DIALOG_CONFIRM:
    case WEBKIT_SCRIPT_DIALOG_BEFORE_UNLOAD_CONFIRM:
      webkit_script_dialog_confirm_set_confirmed(of->dialog, is_accepted);
      break;
    case WEBKIT_SCRIPT_DIALOG_PROMPT:
      if (is_accepted)
        webkit_script_dialog_prompt_set_text(of->dialog, json_string(asked->params, "promptText", ""));
      break;
    case WEBKIT_SCRIPT_DIALOG_ALERT:
      break;
  }
  close_dialog(of);
  answer_empty(asked);
}
