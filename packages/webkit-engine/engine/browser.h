/* What all pages share: settings, the web context, and the dispatch of requests. */
#ifndef WEBKIT_ENGINE_BROWSER_H
#define WEBKIT_ENGINE_BROWSER_H

#include <webkit2/webkit2.h>

#include "engine.h"
#include "messages.h"
#include "page.h"

typedef struct browser {
  WebKitWebContext *context;
  const char *profile;
  const char *first_uri;
  /* Which addresses go through the proxy; NULL without one. */
  GProxyResolver *proxies;
  /* For a proxy that asks for a login. */
  char *proxy_user;
  char *proxy_password;
  gboolean is_headless;
  gboolean has_sandbox;
  int width;
  int height;
} browser;

extern browser the_browser;

#define PAGE_EXTENSION_FILE "libbrowser_engine_webkit_page.so"

/* Whether the part that WebKit loads into the pages' processes is where it belongs. */
gboolean browser_is_complete(void);
void browser_start(const engine_settings *settings);
/* Ends every page, so that a run under a memory checker leaves nothing behind. */
void browser_stop(void);
void browser_dispatch(request *asked);
gboolean browser_goes_through_proxy(const char *uri);
/* What pages start with. */
WebKitSettings *browser_page_settings(void);

/* Ends the engine in order; the tool simply closes the line. */
void browser_close(page *of, request *asked);
void browser_get_version(page *of, request *asked);
void browser_create_target(page *of, request *asked);
void browser_close_target(page *of, request *asked);
void browser_crash(page *of, request *asked);

#endif
