/*
 * Every method that the engine knows: its name, whether it needs a page's session, and what handles it. What is
 * forwarded is answered inside the page's process. The library lists the names, the engine dispatches by them.
 * Target.setAutoAttach is left to both: it stands last in the library's list, and goes with and without a session.
 */
#ifndef WEBKIT_ENGINE_METHODS_H
#define WEBKIT_ENGINE_METHODS_H

#define ENGINE_METHODS(X)                                              \
  X("Browser.close", ROOT, browser_close)                              \
  X("Browser.crash", ROOT, browser_crash)                              \
  X("Browser.getVersion", ROOT, browser_get_version)                   \
  X("Browser.resetPermissions", ROOT, device_reset_grants)             \
  X("Browser.setDownloadBehavior", ROOT, downloads_set_behavior)       \
  X("Browser.setPermission", ROOT, device_set_permission)              \
  X("DOM.describeNode", PAGE, page_forward)                            \
  X("DOM.getFrameOwner", PAGE, page_forward)                           \
  X("DOM.resolveNode", PAGE, page_forward)                             \
  X("DOM.setFileInputFiles", PAGE, files_set)                          \
  X("Emulation.clearGeolocationOverride", PAGE, device_clear_location) \
  X("Emulation.setDeviceMetricsOverride", PAGE, page_set_metrics)      \
  X("Emulation.setEmulatedMedia", PAGE, device_set_media)              \
  X("Emulation.setFocusEmulationEnabled", PAGE, page_acknowledge)      \
  X("Emulation.setGeolocationOverride", PAGE, device_set_location)     \
  X("Emulation.setUserAgentOverride", PAGE, device_set_user_agent)     \
  X("Fetch.continueRequest", PAGE, gate_continue)                      \
  X("Fetch.enable", PAGE, page_prepare)                                \
  X("Fetch.failRequest", PAGE, gate_fail)                              \
  X("Input.dispatchDragEvent", PAGE, input_drag)                       \
  X("Input.dispatchKeyEvent", PAGE, input_key)                         \
  X("Input.dispatchMouseEvent", PAGE, input_mouse)                     \
  X("Input.insertText", PAGE, input_insert_text)                       \
  X("Input.setInterceptDrags", PAGE, drag_intercept)                   \
  X("Log.enable", PAGE, page_acknowledge)                              \
  X("Network.enable", PAGE, page_acknowledge)                          \
  X("Network.getCookies", PAGE, cookies_get_for_urls)                  \
  X("Network.getResponseBody", PAGE, network_get_body)                 \
  X("Page.addScriptToEvaluateOnNewDocument", PAGE, page_prepare)       \
  X("Page.bringToFront", PAGE, page_bring_to_front)                    \
  X("Page.captureScreenshot", PAGE, screenshot_capture)                \
  X("Page.crash", PAGE, page_crash)                                    \
  X("Page.createIsolatedWorld", PAGE, page_forward)                    \
  X("Page.enable", PAGE, page_acknowledge)                             \
  X("Page.getLayoutMetrics", PAGE, page_forward)                       \
  X("Page.getNavigationHistory", PAGE, navigation_history)             \
  X("Page.handleJavaScriptDialog", PAGE, dialog_answer)                \
  X("Page.navigate", PAGE, navigation_go)                              \
  X("Page.navigateToHistoryEntry", PAGE, navigation_go_to_entry)       \
  X("Page.printToPDF", PAGE, print_to_pdf)                             \
  X("Page.setInterceptFileChooserDialog", PAGE, files_intercept)       \
  X("Page.setLifecycleEventsEnabled", PAGE, page_acknowledge)          \
  X("Page.stopLoading", PAGE, navigation_stop)                         \
  X("Runtime.addBinding", PAGE, page_prepare)                          \
  X("Runtime.callFunctionOn", PAGE, page_forward)                      \
  X("Runtime.enable", PAGE, page_forward)                              \
  X("Runtime.evaluate", PAGE, page_evaluate)                           \
  X("Runtime.getProperties", PAGE, page_forward)                       \
  X("Runtime.releaseObject", PAGE, page_forward)                       \
  X("Runtime.runIfWaitingForDebugger", PAGE, page_run)                 \
  X("Runtime.terminateExecution", PAGE, gate_stop_script)              \
  X("Storage.clearCookies", ROOT, cookies_clear)                       \
  X("Storage.getCookies", ROOT, cookies_get_all)                       \
  X("Storage.setCookies", ROOT, cookies_set)                           \
  X("Target.closeTarget", ROOT, browser_close_target)                  \
  X("Target.createTarget", ROOT, browser_create_target)

#endif
