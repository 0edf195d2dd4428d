/*
 * The part of the engine that lives in the process of the pages: WebKit loads it as a web extension. It runs
 * script in every frame and world, keeps the objects that the tool holds on to, and tells what the page does.
 */
#ifndef WEBKIT_ENGINE_PAGE_PROCESS_H
#define WEBKIT_ENGINE_PAGE_PROCESS_H

#include <webkit2/webkit-web-extension.h>

#include "../common/json.h"

/* The objects of the DOM in C are deprecated, yet nothing else takes a node from one world to another. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define CODE_SERVER_ERROR (-32000)
#define CODE_METHOD_NOT_FOUND (-32601)

/* A world of script: the page's own has no name. */
typedef struct world {
  char *name;
  WebKitScriptWorld *script;
} world;

/* Script that runs in each new document, and functions that script of a world can call to tell the tool something. */
typedef struct prepared_script {
  char *world_name;
  char *source;
} prepared_script;

typedef struct web_page {
  WebKitWebPage *source;
  char *target;
  /* Events of a page whose name is not known yet. */
  GQueue held_events;
  /* Calls that wait for what looks like the doing of a person. */
  GQueue held_calls;
  GPtrArray *frames;
  GPtrArray *scripts;
  GPtrArray *bindings;
  GPtrArray *suspect_patterns;
  double clicked_file_field;
} web_page;

typedef struct frame {
  web_page *of;
  WebKitFrame *source;
  guint64 id;
  char *name;
  gboolean is_main;
  /* Counts documents over all frames, so that what is left of an old one finds nobody. */
  guint64 document;
  GPtrArray *contexts;
  /* The helper, and the world of script that it lives in. */
  JSCContext *helper_context;
  JSCValue *helper;
  /* The functions of the page's console as they were. */
  GPtrArray *console_originals;
} frame;

/* A document in a world. */
typedef struct context {
  gint64 id;
  frame *of;
  world *in;
  JSCContext *script;
} context;

/* main.c */
void page_event(web_page *of, const char *method, const char *params);
/* Nobody waits for the reply where `to` is NULL. */
void reply_result(WebKitUserMessage *to, const char *json);
void reply_error(WebKitUserMessage *to, int code, const char *text);
web_page *page_of_source(WebKitWebPage *source);
/* Called by the helper: the main document has gone to a place within itself. */
void page_stepped(const char *uri, gpointer source);

/* worlds.c */
world *world_own(void);
world *world_private(void);
world *world_named(const char *name);
void worlds_start(void);

/* frames.c */
frame *frame_of_source(web_page *of, WebKitFrame *source);
frame *frame_main(web_page *of);
/* By the name that the tool knows it under; a name without a dot is the page's own, so its main frame. */
frame *frame_named(web_page *of, const char *name);
frame *frame_of_document(guint64 document);
frame *frame_around(frame *inner);
WebKitDOMElement *frame_owner(frame *inner);
/* What stands for a node in a world, given what stands for it in any other. */
JSCValue *node_in_world(frame *of, JSCValue *node, world *in);
void frames_free(web_page *of);
/* The window has a new document. */
void frame_begin_document(frame *of);
JSCValue *frame_helper(frame *of);
/* Calls the helper; the arguments are JSCValue, consumed, up to a NULL. NULL when it threw. */
JSCValue *helper_call(frame *of, const char *method, ...) G_GNUC_NULL_TERMINATED;
char *helper_text(frame *of, const char *method, ...) G_GNUC_NULL_TERMINATED;
context *context_of(frame *of, world *in);
context *context_with_id(gint64 id);
const char *frame_label(const frame *of);
void announce_context(const context *of);

/* values.c */
char *object_keep(JSCValue *value, context *of);
JSCValue *object_with_id(const char *id, context **of);
void object_release(const char *id);
void objects_drop_context(const context *of);
/* The protocol's RemoteObject. */
char *remote_object(context *of, JSCValue *value, gboolean by_value, gboolean with_preview);

/* script.c */
void script_evaluate(web_page *of, JsonObject *params, WebKitUserMessage *message);
void script_call_function_on(web_page *of, JsonObject *params, WebKitUserMessage *message);
void script_get_properties(web_page *of, JsonObject *params, WebKitUserMessage *message);
void script_release_object(web_page *of, JsonObject *params, WebKitUserMessage *message);
void script_next_frame(web_page *of, JsonObject *params, WebKitUserMessage *message);
typedef void (*held_handler)(web_page *of, JsonObject *params, WebKitUserMessage *message);
/* Does it once what is done looks like the doing of a person. */
void script_hold(web_page *of, held_handler handler, JsonObject *params, WebKitUserMessage *message);
/* Called by script of the engine's main process, and where that cannot be run. */
void script_run_held(gpointer source);
void script_drop_held(web_page *of);
void script_run_held_anyway(web_page *of, JsonObject *params, WebKitUserMessage *message);
/* Called by the helper. */
void script_settled(double id, gboolean is_kept, JSCValue *value, gpointer data);
void script_drop_frame(const frame *of);

/* dom.c */
void dom_describe_node(web_page *of, JsonObject *params, WebKitUserMessage *message);
void dom_get_frame_owner(web_page *of, JsonObject *params, WebKitUserMessage *message);
void dom_resolve_node(web_page *of, JsonObject *params, WebKitUserMessage *message);
/* The file field that was clicked last, and one that is made to open its chooser. */
void dom_file_field(web_page *of, JsonObject *params, WebKitUserMessage *message);
void dom_open_chooser(web_page *of, JsonObject *params, WebKitUserMessage *message);
/* Called by the helper: a file field is clicked. */
void dom_file_field_clicked(double node_id, gpointer source);
/* Called by the helper: the name of the frame in an element, or an empty text. */
char *dom_frame_in(JSCValue *element, gpointer data);
/* Called by watch.js: the page has made a shadow root that script cannot see. */
void dom_closed_root(JSCValue *host, JSCValue *root, gpointer document);

/* watch.c */
void watch_frame(frame *of);

/* console.c */
void console_watch_page(web_page *of);
void console_watch_frame(frame *of);

/* prepare.c */
void prepare_add_script(web_page *of, JsonObject *params, WebKitUserMessage *message);
void prepare_add_binding(web_page *of, JsonObject *params, WebKitUserMessage *message);
void prepare_document(frame *of, world *in);
void prepare_refused(web_page *of, JsonObject *params, WebKitUserMessage *message);
void prepare_free(web_page *of);

/* requests.c */
void requests_start(const char *path);
void requests_watch(web_page *of);
/* Asks the engine and stands still until it answers; NULL when it does not. */
JsonObject *requests_ask(const GString *question);
/* Whether the page may go to an address that no request of WebKit's is seen for. */
gboolean requests_may_go(web_page *of, const char *uri);
void requests_enable(web_page *of, JsonObject *params, WebKitUserMessage *message);

/* stop.c */
void stop_start(const char *path);
void stop_watch(WebKitFrame *source);
/* Whatever ran when the word came has ended. */
void stop_forget(void);

#endif
