/*
 * browser_engine.h - the contract between the browser tool and a browser engine in a shared library.
 *
 * A vendor builds a library that exports the seven functions below; the tool loads it at run time
 * (BROWSER_WEBKIT_LIB, BROWSER_SERVO_LIB) and drives it with the methods of the Chrome DevTools Protocol.
 * Only 64-bit systems are supported.
 *
 * Messages. Requests and answers are JSON in UTF-8, shaped like the DevTools Protocol:
 *   request   method "Page.navigate", params {"url":"https://example.org/"}
 *   answer    {"result":{"frameId":"1"}}  or  {"error":{"code":-32000,"message":"what went wrong"}}
 *   event     {"method":"Page.loadEventFired","params":{"timestamp":1}}
 * Sessions are flat, as after Target.attachToTarget with "flatten": a request for a session has the member
 * "$session" with the session's id among its params; answers and events of a session have the member
 * "sessionId" beside "result", "error" or "method". A method that the engine does not know is answered with
 * error code -32601. An engine that ends unasked says why, before BE_E_CLOSED, with the event
 *   {"method":"Inspector.detached","params":{"reason":"what happened"}}  without a session.
 *
 * Threads. The tool calls every function from one thread, the one that called be_create. The engine runs its
 * own threads and event loop; it never calls back. No function may block: be_send hands over and returns,
 * be_poll returns at once whether or not there is something.
 *
 * Memory. Strings passed to the engine are valid during the call only. What be_poll hands out belongs to the
 * engine and stays valid until be_msg_free is called with it, which happens before the next be_poll.
 */
#ifndef BROWSER_ENGINE_H
#define BROWSER_ENGINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define BE_EXPORT __declspec(dllexport)
#else
#define BE_EXPORT __attribute__((visibility("default")))
#endif

/* The version of this contract. A library built for another version is not used. */
#define BE_ABI_VERSION 1u

/* Results. Positive values and zero are success; what is not listed counts as BE_E_INTERNAL. */
#define BE_OK 0
#define BE_E_CLOSED (-1)   /* the engine has ended; nothing but be_destroy is called after this */
#define BE_E_INVALID (-2)  /* a bad argument, such as options that are not JSON */
#define BE_E_BUSY (-3)     /* be_send only: the queue is full; the same request is sent again later */
#define BE_E_INTERNAL (-4)

/*
 * One message from the engine. The layout is fixed: 40 bytes, naturally aligned.
 *   offset 0   id         the id of the be_send that is answered; 0 for an event
 *   offset 8   json       UTF-8, json_len bytes, not necessarily terminated
 *   offset 16  json_len   1 to 256 MiB
 *   offset 24  bytes      optional binary content, NULL when there is none
 *   offset 32  bytes_len  up to 256 MiB
 * Binary content is the member "data" of the message's result (or of an event's params), which the JSON then
 * leaves out: a screenshot is sent as it is, and the tool turns it into the protocol's base64.
 */
typedef struct be_msg {
  uint64_t id;
  const char *json;
  uint64_t json_len;
  const uint8_t *bytes;
  uint64_t bytes_len;
} be_msg;

/* BE_ABI_VERSION as this library was built. Called first, before anything else. */
BE_EXPORT uint32_t be_abi_version(void);

/*
 * A static, terminated JSON object: {"name":"webkit","version":"2.50.1","methods":["Page.navigate", ...]}.
 * "name" is the engine's name as in BROWSER_BACKEND. "methods" may be left out; where it is given, the tool
 * answers every other method itself with -32601. Called before be_create.
 */
BE_EXPORT const char *be_info(void);

/*
 * Starts an engine. options is a terminated JSON object; every member may be absent and unknown ones are to be
 * ignored: "headless" (boolean), "width" and "height" (CSS pixels), "proxy" (URL), "proxyBypass" (array of host
 * names and of address ranges such as "10.0.0.0/8" that are reached without it), "ignoreHttpsErrors" (boolean),
 * "profileDir" (path of an empty folder, which is deleted in the end), "url" (first page). On success *handle is
 * set and BE_OK returned; otherwise nothing is left running.
 */
BE_EXPORT int32_t be_create(const char *options, void **handle);

/* Hands over one request. id is at least 1 and unique; method and params are terminated, params is an object. */
BE_EXPORT int32_t be_send(void *handle, uint64_t id, const char *method, const char *params);

/* Takes the next message: 1 and *out filled, 0 for none yet, or an error. */
BE_EXPORT int32_t be_poll(void *handle, be_msg *out);

/* Gives back what be_poll filled in. The be_msg itself belongs to the tool. */
BE_EXPORT void be_msg_free(void *handle, be_msg *msg);

/* Ends the engine: pages, processes, threads and profile are gone when it returns. Called once, last. */
BE_EXPORT void be_destroy(void *handle);

#ifdef __cplusplus
}
#endif

#endif
