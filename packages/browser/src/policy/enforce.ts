/** Holds every target of the browser to the URL policy: redirects, page-made navigations and subresources included. */
import type { CdpSession } from "../cdp/connection.ts";
import type { Notices } from "../page/notices.ts";
import { isLinkLocalHost, suspectPatterns, type UrlPolicy, whyBlocked } from "./url-policy.ts";

export interface EnforceOptions {
  policy: UrlPolicy;
  notices: Notices;
}

export function enforceUrlPolicy(session: CdpSession, { policy, notices }: EnforceOptions): void {
  const patterns = suspectPatterns(policy);
  if (patterns.length === 0) return;
  session.on("Fetch.requestPaused", ({ requestId, request }) => {
    const reason = whyBlocked(request.url, policy);
    if (reason === null) {
      session.tell("Fetch.continueRequest", { requestId });
      return;
    }
    notices.add("blocked", `A request to ${request.url.slice(0, 200)} was blocked: ${reason}.`);
    session.tell("Fetch.failRequest", { requestId, errorReason: "BlockedByClient" });
  });
  session.tell("Fetch.enable", { patterns: patterns.map((urlPattern) => ({ urlPattern })) });
  if (policy.allowLinkLocal) return;
  // A name may resolve to a blocked address; that shows only once the answer is there, and is not shown further.
  session.on("Network.responseReceived", ({ type, response }) => {
    if (type !== "Document" || !isLinkLocalHost(response.remoteIPAddress ?? "")) return;
    notices.add(
      "blocked",
      `${response.url.slice(0, 200)} resolves to a link-local address; the page was left.`,
    );
    session.tell("Page.navigate", { url: "about:blank" });
  });
}
