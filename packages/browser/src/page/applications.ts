/**
 * Addresses such as `tel:` or `zoommtg:` make the browser ask, in a window of its own, whether another application
 * shall open them. Nobody sees that window, and while it is there the page gets no input. So they lead nowhere.
 */
import type { CdpSession } from "../cdp/connection.ts";
import { worldName } from "./frame.ts";

const bindingName = "browserToolAddress";
const ownSchemes =
  /^(https?|about|blob|data|file|filesystem|javascript|chrome|chrome-[a-z-]+|devtools|view-source):/i;

export const needsApplication = (url: string) => url !== "" && !ownSchemes.test(url);

/** Runs in each new document before its own script; the binding is there only in the tool's world. */
function watchAddresses(schemes: RegExp, tell: (url: string) => void): void {
  const { navigation } = globalThis as unknown as { navigation?: EventTarget };
  navigation?.addEventListener("navigate", (event) => {
    const { url } = (event as Event & { destination: { url: string } }).destination;
    if (!event.cancelable || schemes.test(url)) return;
    event.preventDefault();
    tell(url);
  });
}

export interface ApplicationEvents {
  /** A script or a link tried to open it; the page continues as if nothing had happened. */
  onPrevented: (url: string) => void;
  /** A server redirected to it, or a new window began with it; the browser asks now. */
  onAsked: (url: string) => void;
}

export function guardApplications(session: CdpSession, { onPrevented, onAsked }: ApplicationEvents): void {
  session.on("Runtime.bindingCalled", ({ name, payload }) => {
    if (name === bindingName) onPrevented(payload);
  });
  session.on("Network.requestWillBeSent", ({ type, request }) => {
    if (type === "Document" && needsApplication(request.url)) onAsked(request.url);
  });
  session.tell("Runtime.addBinding", { name: bindingName, executionContextName: worldName });
  session.tell("Page.addScriptToEvaluateOnNewDocument", {
    source: `(${watchAddresses.toString()})(${ownSchemes}, (url) => globalThis.${bindingName}?.(url))`,
    worldName,
  });
}
