/*
 * Plays the tool: loads the library, drives an engine through one session with everything in it, and looks at the
 * answers. Meant to be run with the library, the engine and the pages' part built for a memory checker.
 * Usage: driver <library>
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "browser_engine.h"

#define WAIT_MS_MAX 60000
#define KEPT_BYTES_MAX (8u * 1024u * 1024u)

static struct {
  uint32_t (*abi_version)(void);
  const char *(*info)(void);
  int32_t (*create)(const char *, void **);
  int32_t (*send)(void *, uint64_t, const char *, const char *);
  int32_t (*poll)(void *, be_msg *);
  void (*msg_free)(void *, be_msg *);
  void (*destroy)(void *);
} be;

static void *engine;
static uint64_t last_id;
/* Everything that came since `forget`, one message after another. */
static char *heard;
static size_t heard_bytes;
static uint64_t content_bytes;
static int failures;
static bool is_over;

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "%s is not there: %s\n", name, dlerror());
    exit(2);
  }
  return found;
}

static void forget(void) {
  heard_bytes = 0;
  content_bytes = 0;
  heard[0] = '\0';
}

static void keep(const be_msg *message) {
  if (heard_bytes + message->json_len + 2 > KEPT_BYTES_MAX)
    forget();
  memcpy(heard + heard_bytes, message->json, message->json_len);
  heard_bytes += message->json_len;
  heard[heard_bytes++] = '\n';
  heard[heard_bytes] = '\0';
  content_bytes += message->bytes_len;
}

/* Polls until the message with this id, or, for 0, until the words have been heard or the engine is gone. */
static bool wait_for(uint64_t id, const char *words) {
  const struct timespec pause = {0, 1000 * 1000};
  for (int waited_ms = 0; waited_ms < WAIT_MS_MAX; waited_ms++) {
    be_msg message;
    int32_t got;
    while ((got = be.poll(engine, &message)) > 0) {
      const uint64_t answered = message.id;
      keep(&message);
      be.msg_free(engine, &message);
      if (id != 0 && answered == id)
        return true;
    }
    if (got < 0) {
      is_over = true;
      return id == 0 && (!words || strstr(heard, words));
    }
    if (id == 0 && words && strstr(heard, words))
      return true;
    nanosleep(&pause, NULL);
  }
  return false;
}

static void check(bool is_right, const char *what) {
  if (is_right)
    return;
  failures++;
  fprintf(stderr, "FAILED: %s\n  heard: %.2000s\n", what, heard);
}

/* Sends and waits for the answer; the words have to be in it, or in an event that came before. */
static void ask(const char *method, const char *params, const char *words) {
  forget();
  const uint64_t id = ++last_id;
  const int32_t sent = be.send(engine, id, method, params);
  char what[300];
  snprintf(what, sizeof what, "%s %.200s", method, params);
  check(sent == BE_OK && wait_for(id, NULL) && (!words || strstr(heard, words)), what);
}

static void drive(void) {
  ask("Target.setAutoAttach", "{\"autoAttach\":true}", "\"targetId\":\"W1\"");
  ask("Browser.getVersion", "{}", "WebKitGTK/");
  ask("Nothing.atAll", "{}", "-32601");
  ask("Page.navigate", "{\"url\":\"x\"}", "-32601");
  ask("Runtime.evaluate", "{\"$session\":\"S9\"}", "Session with given id not found");
  ask("Page.navigate", "not JSON", "not a JSON object");
  ask("Page.navigate", "[]", "not a JSON object");
  ask("Page.navigate", "{\"$session\":\"S1\"}", "needs a url");
  ask("Page.enable", "{\"$session\":\"S1\"}", "result");
  ask("Runtime.enable", "{\"$session\":\"S1\"}", "result");
  ask("Runtime.addBinding", "{\"$session\":\"S1\",\"name\":\"tell\",\"executionContextName\":\"tool\"}", "result");
  ask("Page.addScriptToEvaluateOnNewDocument",
      "{\"$session\":\"S1\",\"source\":\"tell('prepared')\",\"worldName\":\"tool\"}", "result");
  ask("Runtime.runIfWaitingForDebugger", "{\"$session\":\"S1\"}", "result");
  ask("Page.navigate",
      "{\"$session\":\"S1\",\"url\":\"data:text/html,<title>One</title><input id=i><button id=b "
      "onclick=\\\"document.title='Hit';console.log('said',{a:1})\\\" style=position:fixed;left:0;top:100px;"
      "width:200px;height:100px>B</button><iframe srcdoc='<p>inner</p>'></iframe>\"}",
      "\"loaderId\"");
  check(wait_for(0, "\"name\":\"load\""), "the document is loaded");
  check(wait_for(0, "prepared"), "the prepared script ran");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"1+1\",\"returnByValue\":true}", "\"value\":2");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"(\"}", "SyntaxError");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"nobody\"}", "ReferenceError");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"a=[];a[0]=a\",\"returnByValue\":true}", "error");
  ask("Runtime.evaluate",
      "{\"$session\":\"S1\",\"expression\":\"Promise.resolve(7)\",\"awaitPromise\":true,\"returnByValue\":true}",
      "\"value\":7");
  ask("Runtime.evaluate",
      "{\"$session\":\"S1\",\"expression\":\"Promise.reject(new Error('no'))\",\"awaitPromise\":true}", "Error: no");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"1\",\"contextId\":-5}", "Cannot find context");
  ask("Runtime.callFunctionOn", "{\"$session\":\"S1\",\"functionDeclaration\":\"()=>1\",\"objectId\":\"x\"}",
      "Could not find object");
  ask("Runtime.callFunctionOn",
      "{\"$session\":\"S1\",\"functionDeclaration\":\"(a,b)=>a+b\",\"arguments\":[{\"value\":2},{\"value\":3}],"
      "\"returnByValue\":true}",
      "\"value\":5");
  ask("Runtime.getProperties", "{\"$session\":\"S1\",\"objectId\":\"gone\"}", "Could not find object");
  ask("Runtime.releaseObject", "{\"$session\":\"S1\",\"objectId\":\"gone\"}", "result");
  ask("DOM.describeNode", "{\"$session\":\"S1\",\"backendNodeId\":99}", "Could not find node");
  ask("DOM.getFrameOwner", "{\"$session\":\"S1\",\"frameId\":\"1.2\"}", "was not found");
  ask("Page.getLayoutMetrics", "{\"$session\":\"S1\"}", "clientWidth");
  ask("Input.dispatchMouseEvent", "{\"$session\":\"S1\",\"type\":\"mouseMoved\",\"x\":50,\"y\":150}", "result");
  ask("Input.dispatchMouseEvent",
      "{\"$session\":\"S1\",\"type\":\"mousePressed\",\"x\":50,\"y\":150,\"button\":\"left\",\"clickCount\":1}",
      "result");
  ask("Input.dispatchMouseEvent",
      "{\"$session\":\"S1\",\"type\":\"mouseReleased\",\"x\":50,\"y\":150,\"button\":\"left\",\"clickCount\":1}",
      "consoleAPICalled");
  ask("Input.dispatchMouseEvent", "{\"$session\":\"S1\",\"type\":\"mousePressed\",\"x\":-1e300,\"y\":1e300}",
      "button must be");
  ask("Input.dispatchMouseEvent", "{\"$session\":\"S1\",\"type\":\"waved\",\"button\":\"left\"}", "type must be");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"document.title\"}", "\"value\":\"Hit\"");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"i.focus()\"}", "result");
  ask("Input.insertText", "{\"$session\":\"S1\",\"text\":\"h\\u00e9llo \\ud83d\\ude00\"}", "result");
  ask("Input.dispatchKeyEvent",
      "{\"$session\":\"S1\",\"type\":\"keyDown\",\"key\":\"a\",\"code\":\"KeyA\",\"text\":\"a\"}", "result");
  ask("Input.dispatchKeyEvent", "{\"$session\":\"S1\",\"type\":\"keyUp\",\"key\":\"a\",\"code\":\"KeyA\"}", "result");
  ask("Input.dispatchKeyEvent", "{\"$session\":\"S1\",\"type\":\"keyDown\",\"key\":\"NoKey\"}", "not known");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"i.value\"}", "llo");
  ask("Page.captureScreenshot", "{\"$session\":\"S1\"}", "result");
  check(content_bytes > 500, "a picture has come");
  ask("Page.captureScreenshot", "{\"$session\":\"S1\",\"format\":\"gif\"}", "-32601");
  ask("Page.captureScreenshot",
      "{\"$session\":\"S1\",\"clip\":{\"x\":900000,\"y\":9,\"width\":10,\"height\":10,\"scale\":1}}", "error");
  ask("Runtime.evaluate",
      "{\"$session\":\"S1\",\"expression\":\"document.body.style.height='50000px'\"}", "result");
  ask("Page.captureScreenshot",
      "{\"$session\":\"S1\",\"clip\":{\"x\":0,\"y\":0,\"width\":800,\"height\":5000,\"scale\":0.1}}", "result");
  check(content_bytes > 100, "a picture of a part of a huge page has come");
  ask("Emulation.setDeviceMetricsOverride", "{\"$session\":\"S1\",\"width\":-1,\"height\":5}", "must be");
  ask("Emulation.setDeviceMetricsOverride", "{\"$session\":\"S1\",\"width\":600,\"height\":500}", "result");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"innerWidth\"}", "600");
  ask("Fetch.enable", "{\"$session\":\"S1\",\"patterns\":[{\"urlPattern\":\"*blocked*\"}]}", "result");
  ask("Fetch.continueRequest", "{\"$session\":\"S1\",\"requestId\":\"G77\"}", "Invalid InterceptionId");
  ask("Page.handleJavaScriptDialog", "{\"$session\":\"S1\",\"accept\":true}", "No dialog");
  be.send(engine, ++last_id, "Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"confirm('sure?')\"}");
  check(wait_for(0, "javascriptDialogOpening"), "a dialog opens");
  ask("Page.handleJavaScriptDialog", "{\"$session\":\"S1\",\"accept\":true}", "result");
  check(wait_for(last_id - 1, NULL) || strstr(heard, "true"), "the dialog is answered");
  ask("Emulation.setUserAgentOverride", "{\"$session\":\"S1\",\"userAgent\":\"Me\"}", "result");
  ask("Emulation.setEmulatedMedia",
      "{\"$session\":\"S1\",\"features\":[{\"name\":\"prefers-color-scheme\",\"value\":\"dark\"}]}", "result");
  ask("Emulation.setEmulatedMedia", "{\"$session\":\"S1\",\"features\":[{\"name\":\"hover\"},7]}", "-32601");
  ask("Emulation.setGeolocationOverride", "{\"$session\":\"S1\",\"latitude\":91}", "out of range");
  ask("Emulation.setGeolocationOverride", "{\"$session\":\"S1\",\"latitude\":1,\"longitude\":2}", "result");
  ask("Emulation.clearGeolocationOverride", "{\"$session\":\"S1\"}", "result");
  ask("Browser.setPermission", "{\"permission\":{\"name\":\"geolocation\"},\"setting\":\"granted\"}", "result");
  ask("Browser.setPermission", "{\"permission\":{\"name\":\"flying\"},\"setting\":\"granted\"}", "-32601");
  ask("Browser.setPermission", "{\"permission\":3}", "-32601");
  ask("Browser.resetPermissions", "{}", "result");
  ask("Storage.setCookies", "{\"cookies\":[{\"name\":\"a\",\"value\":\"b\",\"domain\":\"x.test\",\"expires\":4e9}]}",
      "result");
  ask("Storage.setCookies", "{\"cookies\":[{\"name\":\"a\"}]}", "needs a name");
  ask("Storage.setCookies", "{\"cookies\":[1,[]]}", "needs a name");
  ask("Storage.setCookies", "{}", "must be a list");
  ask("Storage.getCookies", "{}", "x.test");
  ask("Network.getCookies", "{\"$session\":\"S1\",\"urls\":[{}]}", "error");
  ask("Network.getCookies", "{\"$session\":\"S1\",\"urls\":[\"http://x.test/\"]}", "x.test");
  ask("Storage.clearCookies", "{}", "result");
  ask("Page.printToPDF", "{\"$session\":\"S1\",\"pageRanges\":\"x\"}", "pageRanges");
  ask("Page.printToPDF", "{\"$session\":\"S1\",\"scale\":-9,\"paperWidth\":1e12}", "result");
  check(content_bytes > 500, "a PDF has come");
  ask("DOM.setFileInputFiles", "{\"$session\":\"S1\",\"files\":[\"relative\"]}", "absolute");
  ask("DOM.setFileInputFiles", "{\"$session\":\"S1\",\"backendNodeId\":5,\"files\":[\"/etc/hostname\"]}",
      "Could not find node");
  ask("Input.dispatchDragEvent", "{\"$session\":\"S1\",\"type\":\"drop\",\"x\":1,\"y\":1}", "-32601");
  ask("Page.navigate",
      "{\"$session\":\"S1\",\"url\":\"data:text/html,<div draggable=true style=width:200px;height:200px "
      "ondragstart=event.dataTransfer.setData('text/plain','x')>A</div><input type=file id=f>"
      "<script>onmessage=0;new WebSocket('ws://127.0.0.1:2/');document.body.attachShadow({mode:'closed'})</script>\"}",
      "\"loaderId\"");
  check(wait_for(0, "\"name\":\"load\""), "the second document is loaded");
  ask("Input.dispatchMouseEvent",
      "{\"$session\":\"S1\",\"type\":\"mousePressed\",\"x\":50,\"y\":50,\"button\":\"left\",\"clickCount\":1}",
      "result");
  ask("Input.dispatchMouseEvent", "{\"$session\":\"S1\",\"type\":\"mouseMoved\",\"x\":80,\"y\":80}", "result");
  ask("Input.dispatchMouseEvent", "{\"$session\":\"S1\",\"type\":\"mouseMoved\",\"x\":120,\"y\":120}", "result");
  ask("Input.dispatchMouseEvent",
      "{\"$session\":\"S1\",\"type\":\"mouseReleased\",\"x\":120,\"y\":120,\"button\":\"left\"}", "result");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"document.body\"}", "objectId");
  ask("Page.getNavigationHistory", "{\"$session\":\"S1\"}", "currentIndex");
  ask("Page.navigateToHistoryEntry", "{\"$session\":\"S1\",\"entryId\":123456789}", "No entry");
  ask("Page.navigate", "{\"$session\":\"S1\",\"url\":\"http://127.0.0.1:9/\"}", "errorText");
  ask("Target.createTarget", "{\"url\":\"about:blank\"}", "W2");
  ask("Runtime.evaluate", "{\"$session\":\"S2\",\"expression\":\"1\"}", "result");
  ask("Page.crash", "{\"$session\":\"S2\"}", "result");
  check(wait_for(0, "targetCrashed"), "the crash is reported");
  ask("Runtime.evaluate", "{\"$session\":\"S2\",\"expression\":\"1\"}", "error");
  ask("Target.closeTarget", "{\"targetId\":\"W2\"}", "success");
  ask("Target.closeTarget", "{\"targetId\":\"W2\"}", "No target");
  be.send(engine, ++last_id, "Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"console.log('begun');for(;;);\"}");
  check(wait_for(0, "begun"), "an endless script begins");
  ask("Runtime.terminateExecution", "{\"$session\":\"S1\"}", NULL);
  check(wait_for(last_id - 1, NULL) || strstr(heard, "exceptionDetails"), "an endless script is stopped");
  ask("Runtime.evaluate", "{\"$session\":\"S1\",\"expression\":\"2+2\"}", "\"value\":4");
}

int main(int count, char **arguments) {
  void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  heard = malloc(KEPT_BYTES_MAX);
  if (!library || !heard) {
    fprintf(stderr, "usage: driver <library>; %s\n", count == 2 ? dlerror() : "");
    return 2;
  }
  be.abi_version = symbol(library, "be_abi_version");
  be.info = symbol(library, "be_info");
  be.create = symbol(library, "be_create");
  be.send = symbol(library, "be_send");
  be.poll = symbol(library, "be_poll");
  be.msg_free = symbol(library, "be_msg_free");
  be.destroy = symbol(library, "be_destroy");
  forget();
  check(be.abi_version() == BE_ABI_VERSION, "the version is right");
  check(strstr(be.info(), "\"name\":\"webkit\"") != NULL, "the name is webkit");
  check(be.create(NULL, &engine) == BE_E_INVALID, "no options are refused");
  check(be.create("hello", &engine) == BE_E_INVALID, "options that are not JSON are refused");
  check(be.send(NULL, 1, "a", "{}") == BE_E_INVALID, "no handle is refused");
  if (be.create("{\"width\":800,\"height\":600}", &engine) != BE_OK) {
    fprintf(stderr, "no engine\n");
    return 1;
  }
  check(be.send(engine, 0, "a", "{}") == BE_E_INVALID, "an id of 0 is refused");
  drive();
  forget();
  be.send(engine, ++last_id, "Browser.close", "{}");
  check(wait_for(0, "exited with code 0") && is_over, "the engine ends in order, and leaves no memory behind");
  be.destroy(engine);
  /* An engine that nobody has asked anything ends as well. */
  check(be.create("{}", &engine) == BE_OK, "a second engine starts");
  be.destroy(engine);
  free(heard);
  printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
