/*
 * The page of the stub engine: whatever address is opened shows one heading and one button. It runs no script; it
 * tells from the source that the tool sends which of its few canned answers is meant.
 */

static void sayf(engine *e, uint64_t id, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void sayf(engine *e, uint64_t id, const char *format, ...) {
  char json[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(json, sizeof json, format, arguments);
  va_end(arguments);
  say(e, id, json);
}

static int is(const char *method, const char *name) { return !strcmp(method, name); }

static void announce_page(engine *e) {
  e->attached = 1;
  snprintf(e->url, sizeof e->url, "about:blank");
  say(e, 0, "{\"method\":\"Target.attachedToTarget\",\"params\":{\"sessionId\":\"S1\",\"waitingForDebugger\":false,"
            "\"targetInfo\":{\"targetId\":\"T1\",\"type\":\"page\",\"title\":\"\",\"url\":\"about:blank\","
            "\"attached\":true,\"canAccessOpener\":false}}}");
}

static void attach_page(engine *e, uint64_t id, const char *params) {
  if (!strstr(params, "\"$session\"") && !e->attached) announce_page(e);
  say(e, id, "{\"result\":{}}");
}

static void lifecycle(engine *e, const char *name) {
  sayf(e, 0, "{\"method\":\"Page.lifecycleEvent\",\"sessionId\":\"S1\",\"params\":{\"frameId\":\"T1\","
             "\"loaderId\":\"L%d\",\"name\":\"%s\",\"timestamp\":1}}", e->documents, name);
}

static void navigate_page(engine *e, uint64_t id, const char *params) {
  const char *url = strstr(params, "\"url\":\"");
  url = url ? url + 7 : "about:blank";
  e->documents++;
  e->clicks = 0;
  snprintf(e->url, sizeof e->url, "%.*s", (int)strcspn(url, "\""), url);
  sayf(e, id, "{\"result\":{\"frameId\":\"T1\",\"loaderId\":\"L%d\"},\"sessionId\":\"S1\"}", e->documents);
  sayf(e, 0, "{\"method\":\"Page.frameNavigated\",\"sessionId\":\"S1\",\"params\":{\"type\":\"Navigation\",\"frame\":"
             "{\"id\":\"T1\",\"loaderId\":\"L%d\",\"url\":\"%s\"}}}", e->documents, e->url);
  lifecycle(e, "init");
  lifecycle(e, "DOMContentLoaded");
  lifecycle(e, "load");
}

static void evaluate_in_page(engine *e, uint64_t id, const char *params) {
  if (strstr(params, "\"contextId\":7"))
    say(e, id, "{\"result\":{\"result\":{\"type\":\"object\",\"objectId\":\"A1\"}},\"sessionId\":\"S1\"}");
  else if (strstr(params, "clicks"))
    sayf(e, id, "{\"result\":{\"result\":{\"type\":\"object\",\"value\":{\"json\":\"%d\"}}},\"sessionId\":\"S1\"}", e->clicks);
  else
    say(e, id, "{\"result\":{\"result\":{\"type\":\"object\"},\"exceptionDetails\":{\"exceptionId\":1,\"text\":"
               "\"Uncaught ReferenceError: only clicks is defined\",\"lineNumber\":0,\"columnNumber\":0}},\"sessionId\":\"S1\"}");
}

static void call_agent(engine *e, uint64_t id, const char *params) {
  const char *where = "\"url\":\"%s\",\"title\":\"Stub page\"";
  char place[1200];
  snprintf(place, sizeof place, where, e->url);
  if (strstr(params, "this.snapshot("))
    sayf(e, id, "{\"result\":{\"result\":{\"type\":\"object\",\"value\":{\"lines\":[\"- heading \\\"Stub\\\" [level=1] [ref=e1]\","
                "\"- button \\\"Pressed %d times\\\" [ref=e2]\"],\"frames\":[],\"truncated\":false,\"chars\":80,\"found\":true,"
                "\"lastRef\":2,\"hosts\":0,\"isSmall\":true,%s}}},\"sessionId\":\"S1\"}", e->clicks, place);
  else if (strstr(params, "this.click("))
    say(e, id, strstr(params, "\"value\":\"e2\"")
                   ? "{\"result\":{\"result\":{\"type\":\"object\",\"value\":{\"found\":true,\"matches\":1,\"readiness\":"
                     "{\"state\":\"ready\",\"x\":10,\"y\":20}}}},\"sessionId\":\"S1\"}"
                   : "{\"result\":{\"result\":{\"type\":\"object\",\"value\":{\"found\":false,\"matches\":0}}},\"sessionId\":\"S1\"}");
  else
    sayf(e, id, "{\"result\":{\"result\":{\"type\":\"object\",\"value\":{\"hit\":true,\"reason\":\"\",\"formSent\":false,%s}}},"
                "\"sessionId\":\"S1\"}", place);
}

/* Whether the request was for the page. Before the page is attached only the attaching is. */
static int answer_for_page(engine *e, uint64_t id, const char *method, const char *params) {
  if (is(method, "Target.setAutoAttach")) attach_page(e, id, params);
  else if (!e->attached) return 0;
  else if (is(method, "Page.navigate")) navigate_page(e, id, params);
  else if (is(method, "Runtime.evaluate")) evaluate_in_page(e, id, params);
  else if (is(method, "Runtime.callFunctionOn")) call_agent(e, id, params);
  else if (is(method, "Page.createIsolatedWorld")) say(e, id, "{\"result\":{\"executionContextId\":7},\"sessionId\":\"S1\"}");
  else if (is(method, "Page.getLayoutMetrics"))
    say(e, id, "{\"result\":{\"cssLayoutViewport\":{\"pageX\":0,\"pageY\":0,\"clientWidth\":800,\"clientHeight\":600},"
               "\"cssContentSize\":{\"x\":0,\"y\":0,\"width\":800,\"height\":600}},\"sessionId\":\"S1\"}");
  else if (is(method, "Input.dispatchMouseEvent")) {
    e->clicks += strstr(params, "mouseReleased") != NULL;
    say(e, id, "{\"result\":{},\"sessionId\":\"S1\"}");
  } else if (is(method, "Page.enable") || is(method, "Page.setLifecycleEventsEnabled") || is(method, "Runtime.enable") ||
             is(method, "Runtime.runIfWaitingForDebugger"))
    say(e, id, "{\"result\":{},\"sessionId\":\"S1\"}");
  else return 0;
  return 1;
}
