/*
 * A small engine that keeps the contract of browser_engine.h: canned answers, its own thread. Asked to attach to
 * its pages, it shows the one of stub_page.h, which the tool can open, read, click and photograph.
 */
#include "browser_engine.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STUB_ABI
#define STUB_ABI BE_ABI_VERSION
#endif
/* What stub_page.h answers beside the methods listed below. */
#ifdef STUB_SELF_ATTACH
#define STUB_ATTACH ""
#else
#define STUB_ATTACH "\"Target.setAutoAttach\","
#endif
#define STUB_PAGE_METHODS STUB_ATTACH \
  "\"Page.enable\",\"Page.setLifecycleEventsEnabled\",\"Page.createIsolatedWorld\"," \
  "\"Page.getLayoutMetrics\",\"Runtime.enable\",\"Runtime.runIfWaitingForDebugger\",\"Runtime.callFunctionOn\"," \
  "\"Input.dispatchMouseEvent\","
#ifndef STUB_NAME
#define STUB_NAME "servo"
#endif

typedef struct node {
  uint64_t id;
  char *json;
  size_t json_len;
  uint8_t *bytes;
  size_t bytes_len;
  struct node *next;
} node;

typedef struct engine {
  pthread_mutex_t lock;
  pthread_t thread;
  node *head, *tail;
  int busy_left;
  int closed;
  int ticking;
  int handed_out;
  int polls;
  int attached;
  int documents;
  int clicks;
  char url[1024];
  char log[4096];
} engine;

uint32_t be_abi_version(void) { return STUB_ABI; }

const char *be_info(void) {
#ifdef STUB_BAD_INFO
  return "not json";
#else
  return "{\"name\":\"" STUB_NAME "\",\"version\":\"0.1-stub\",\"methods\":["
         "\"Target.getTargets\",\"Target.attachToTarget\",\"Page.navigate\",\"Page.captureScreenshot\","
         STUB_PAGE_METHODS
         "\"Runtime.evaluate\",\"Stub.big\",\"Stub.busy\",\"Stub.die\",\"Stub.garbage\",\"Stub.tick\","
         "\"Stub.refuse\",\"Stub.echo\",\"Stub.burst\",\"Stub.counts\"]}";
#endif
}

static void push(engine *e, uint64_t id, const char *json, size_t json_len, const void *bytes, size_t bytes_len) {
  node *n = calloc(1, sizeof *n);
  n->id = id;
  n->json = malloc(json_len); /* deliberately not terminated */
  memcpy(n->json, json, json_len);
  n->json_len = json_len;
  if (bytes) {
    n->bytes = malloc(bytes_len ? bytes_len : 1);
    memcpy(n->bytes, bytes, bytes_len);
    n->bytes_len = bytes_len;
  }
  pthread_mutex_lock(&e->lock);
  if (e->tail) e->tail->next = n;
  else e->head = n;
  e->tail = n;
  pthread_mutex_unlock(&e->lock);
}

static void say(engine *e, uint64_t id, const char *json) { push(e, id, json, strlen(json), NULL, 0); }

#include "stub_page.h"

static void *tick(void *handle) {
  engine *e = handle;
  for (int i = 0; i < 3 && !e->closed; i++) {
    char json[128];
    usleep(20000);
    snprintf(json, sizeof json, "{\"method\":\"Stub.ticked\",\"params\":{\"count\":%d},\"sessionId\":\"S1\"}", i + 1);
    say(e, 0, json);
  }
  return NULL;
}

int32_t be_create(const char *options, void **handle) {
  if (strstr(options, "\"url\":\"fail:\"")) return BE_E_INVALID;
  engine *e = calloc(1, sizeof *e);
  pthread_mutex_init(&e->lock, NULL);
  snprintf(e->log, sizeof e->log, "%s", options);
  say(e, 0, "{\"method\":\"Target.targetCreated\",\"params\":{\"targetInfo\":{\"targetId\":\"T1\",\"type\":\"page\"}}}");
#ifdef STUB_SELF_ATTACH
  announce_page(e);
#endif
  *handle = e;
  return BE_OK;
}

static void say_big(engine *e, uint64_t id, const char *params) {
  const char *at = strstr(params, "\"bytes\":");
  size_t count = at ? strtoull(at + 8, NULL, 10) : 0;
  char *json = malloc(count + 64);
  size_t used = (size_t)sprintf(json, "{\"result\":{\"text\":\"");
  memset(json + used, 'x', count);
  used += count;
  memcpy(json + used, "\"}}", 3);
  push(e, id, json, used + 3, NULL, 0);
  free(json);
}

int32_t be_send(void *handle, uint64_t id, const char *method, const char *params) {
  engine *e = handle;
  static const uint8_t png[] = {0x89, 'P', 'N', 'G', 0, 1, 2, 255};
  if (e->closed) return BE_E_CLOSED;
  if (e->busy_left > 0) {
    e->busy_left--;
    return BE_E_BUSY;
  }
  if (answer_for_page(e, id, method, params)) return BE_OK;
  if (!strcmp(method, "Target.getTargets"))
    say(e, id, "{\"result\":{\"targetInfos\":[{\"targetId\":\"T1\",\"type\":\"page\",\"url\":\"about:blank\"}]}}");
  else if (!strcmp(method, "Target.attachToTarget")) {
    say(e, 0, "{\"method\":\"Target.attachedToTarget\",\"params\":{\"sessionId\":\"S1\",\"targetInfo\":{\"targetId\":\"T1\"}}}");
    say(e, id, "{\"result\":{\"sessionId\":\"S1\"}}");
  } else if (!strcmp(method, "Page.navigate")) {
    if (!strstr(params, "\"$session\":\"S1\"")) {
      say(e, id, "{\"error\":{\"code\":-32001,\"message\":\"no such session\"}}");
    } else {
      say(e, id, "{\"result\":{\"frameId\":\"F1\",\"loaderId\":\"L1\"},\"sessionId\":\"S1\"}");
      say(e, 0, "{\"method\":\"Page.loadEventFired\",\"params\":{\"timestamp\":1.5},\"sessionId\":\"S1\"}");
    }
  } else if (!strcmp(method, "Runtime.evaluate"))
    say(e, id, strstr(params, "1+1") ? "{\"result\":{\"result\":{\"type\":\"number\",\"value\":2}}}"
                                     : "{\"error\":{\"code\":-32000,\"message\":\"only 1+1 \\u00e9\"}}");
  else if (!strcmp(method, "Page.captureScreenshot")) {
    static const char json[] = "{\"result\":{}}";
    push(e, id, json, sizeof json - 1, png, sizeof png);
  } else if (!strcmp(method, "Stub.echo")) {
    size_t length = strlen(params) + 32;
    char *json = malloc(length);
    int used = snprintf(json, length, "{\"result\":%s}", params);
    push(e, id, json, (size_t)used, NULL, 0);
    free(json);
  } else if (!strcmp(method, "Stub.big")) say_big(e, id, params);
  else if (!strcmp(method, "Stub.burst")) {
    for (int i = 0; i < 1000; i++) {
      char json[96];
      snprintf(json, sizeof json, "{\"method\":\"Stub.item\",\"params\":{\"index\":%d}}", i);
      say(e, 0, json);
    }
    say(e, id, "{\"result\":{}}");
  } else if (!strcmp(method, "Stub.busy")) {
    e->busy_left = 5;
    say(e, id, "{\"result\":{}}");
  } else if (!strcmp(method, "Stub.tick")) {
    say(e, id, "{\"result\":{}}");
    e->ticking = 1;
    pthread_create(&e->thread, NULL, tick, e);
  } else if (!strcmp(method, "Stub.counts")) {
    char json[64];
    snprintf(json, sizeof json, "{\"result\":{\"handedOut\":%d,\"polls\":%d}}", e->handed_out, e->polls);
    say(e, id, json);
  } else if (!strcmp(method, "Stub.garbage")) say(e, id, "{\"result\":");
  else if (!strcmp(method, "Stub.die")) e->closed = 1;
  else if (!strcmp(method, "Stub.refuse")) return BE_E_INVALID;
  return BE_OK;
}

int32_t be_poll(void *handle, be_msg *out) {
  engine *e = handle;
  e->polls++;
  pthread_mutex_lock(&e->lock);
  node *n = e->head;
  if (n) {
    e->head = n->next;
    if (!e->head) e->tail = NULL;
    e->handed_out++;
  }
  pthread_mutex_unlock(&e->lock);
  if (!n) return e->closed ? BE_E_CLOSED : 0;
  out->id = n->id;
  out->json = n->json;
  out->json_len = n->json_len;
  out->bytes = n->bytes;
  out->bytes_len = n->bytes_len;
  free(n);
  return 1;
}

#ifndef STUB_NO_FREE
void be_msg_free(void *handle, be_msg *msg) {
  engine *e = handle;
  e->handed_out--;
  free((void *)msg->json);
  free((void *)msg->bytes);
}
#endif

void be_destroy(void *handle) {
  engine *e = handle;
  const char *profile = strstr(e->log, "\"profileDir\":\"");
  e->closed = 1;
  if (e->ticking) pthread_join(e->thread, NULL);
  while (e->head) {
    node *n = e->head;
    e->head = n->next;
    free(n->json);
    free(n->bytes);
    free(n);
  }
  if (profile) {
    char marker[1024];
    const char *path = profile + 14;
    snprintf(marker, sizeof marker, "%.*s/destroyed", (int)strcspn(path, "\""), path);
    FILE *file = fopen(marker, "a");
    fprintf(file, "%s\n", e->log);
    fclose(file);
  }
  free(e);
}
