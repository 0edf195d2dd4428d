/* Questions to the page's process, and the answers that go on to the tool. */
#include <string.h>

#include "../common/json.h"
#include "page.h"

/* Calls that may wait for a page whose process has not come up yet. */
#define UNSENT_CALLS_MAX 1000u
/* How often a page is asked again while it keeps putting navigations in line. */
#define SETTLE_ROUNDS_MAX 6u
#define CODE_SERVER_ERROR (-32000)
/* The tool takes these words for "the document is gone" and tries again in the next one. */
#define WORDS_FOR_GONE "Inspected target navigated or closed"

typedef struct call {
  page *of;
  char *method;
  char *params;
  page_reply on_reply;
  gpointer data;
} call;

static void end_call(call *made, int code, const char *text) {
  if (made->on_reply)
    made->on_reply(made->of, code, text, made->data);
  page_unref(made->of);
  g_free(made->method);
  g_free(made->params);
  g_free(made);
}

static void on_call_replied(GObject *view, GAsyncResult *result, gpointer data) {
  call *made = data;
  made->of->calls_open--;
  g_autoptr(WebKitUserMessage) reply =
      webkit_web_view_send_message_to_page_finish(WEBKIT_WEB_VIEW(view), result, NULL);
  GVariant *content = reply ? webkit_user_message_get_parameters(reply) : NULL;
  if (!content || !g_variant_is_of_type(content, G_VARIANT_TYPE("(is)"))) {
    end_call(made, CODE_SERVER_ERROR, WORDS_FOR_GONE);
    return;
  }
  int code = 0;
  const char *text = NULL;
  g_variant_get(content, "(i&s)", &code, &text);
  end_call(made, code, text);
}

static void send_call(call *made) {
  page *of = made->of;
  if (of->is_closed || of->is_crashed) {
    end_call(made, CODE_SERVER_ERROR, WORDS_FOR_GONE);
    return;
  }
  of->calls_open++;
  WebKitUserMessage *message = webkit_user_message_new(made->method, g_variant_new_string(made->params));
  webkit_web_view_send_message_to_page(of->view, message, of->closing, on_call_replied, made);
}

void page_call(page *of, const char *method, const char *params, page_reply on_reply, gpointer data) {
  call *made = g_new0(call, 1);
  made->of = page_ref(of);
  made->method = g_strdup(method);
  made->params = g_strdup(params);
  made->on_reply = on_reply;
  made->data = data;
  if (of->is_connected || of->is_crashed)
    send_call(made);
  else if (of->is_closed || g_queue_get_length(&of->unsent) >= UNSENT_CALLS_MAX)
    end_call(made, CODE_SERVER_ERROR, WORDS_FOR_GONE);
  else
    g_queue_push_tail(&of->unsent, made);
}

void page_send_waiting(page *of) {
  call *made;
  while ((made = g_queue_pop_head(&of->unsent)))
    send_call(made);
}

typedef struct settling {
  page_settled on_settled;
  gpointer data;
  guint rounds;
  guint questions;
} settling;

static void ask_to_settle(page *of, settling *wait);

static void on_settle_reply(page *of, int code, const char *text, gpointer data) {
  (void)text;
  settling *wait = data;
  const gboolean is_restless = wait->questions != of->navigation.questions;
  wait->rounds++;
  if (code == 0 && (wait->rounds < 2 || is_restless) && wait->rounds < SETTLE_ROUNDS_MAX) {
    ask_to_settle(of, wait);
    return;
  }
  wait->on_settled(of, wait->data);
  g_free(wait);
}

/*
 * The first reply says that what WebKit had already sent has been handled; what it held back until then goes out
 * before the second question, which is answered only when the page's process has nothing else in line.
 */
static void ask_to_settle(page *of, settling *wait) {
  wait->questions = of->navigation.questions;
  page_call(of, wait->rounds == 0 ? "Engine.ping" : "Engine.idle", "{}", on_settle_reply, wait);
}

void page_settle(page *of, page_settled on_settled, gpointer data) {
  settling *wait = g_new0(settling, 1);
  wait->on_settled = on_settled;
  wait->data = data;
  ask_to_settle(of, wait);
}

static void on_settled_answer(page *of, gpointer data) {
  (void)of;
  answer_empty(data);
}

void page_settle_and_answer(page *of, request *asked) {
  page_settle(of, on_settled_answer, asked);
}

static void on_forward_reply(page *of, int code, const char *text, gpointer data) {
  (void)of;
  if (code == 0)
    answer(data, text);
  else
    answer_code(data, code, text);
}

void page_forward(page *of, request *asked) {
  page_call(of, asked->method, asked->text, on_forward_reply, asked);
}

typedef struct evaluation {
  request *asked;
  int code;
  char *text;
} evaluation;

static void on_evaluation_settled(page *of, gpointer data) {
  evaluation *done = data;
  on_forward_reply(of, done->code, done->text, done->asked);
  g_free(done->text);
  g_free(done);
}

static void on_evaluation_reply(page *of, int code, const char *text, gpointer data) {
  evaluation *done = g_new0(evaluation, 1);
  done->asked = data;
  done->code = code;
  done->text = g_strdup(text);
  page_settle(of, on_evaluation_settled, done);
}

/* Script in the page's own world may lead elsewhere; the tool learns of that before the answer. */
void page_evaluate(page *of, request *asked) {
  const gboolean is_own_world = !json_object_has_member(asked->params, "contextId");
  page_call(of, asked->method, asked->text, is_own_world ? on_evaluation_reply : on_forward_reply, asked);
}
