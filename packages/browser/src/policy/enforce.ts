/** Holds every target of the browser to the URL policy: redirects, page-made navigations and subresources included. */
import type { CdpSession } from "../cdp/connection.ts";
import type { ProxyLogin } from "../launch/proxy.ts";
import type { Notices } from "../page/notices.ts";
import { isLinkLocalHost, suspectPatterns, type UrlPolicy, whyBlocked } from "./url-policy.ts";

export interface EnforceOptions {
  policy: UrlPolicy;
  /** For a proxy that asks for one; every request is looked at then, as each may be the one that is asked. */
  proxyLogin: ProxyLogin | null;
  notices: Notices;
}

export function enforceUrlPolicy(session: CdpSession, options: EnforceOptions): void {
  const { policy, proxyLogin, notices } = options;
  const patterns = proxyLogin ? ["*"] : suspectPatterns(policy);
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
  if (proxyLogin) answerProxy(session, proxyLogin);
  session.tell("Fetch.enable", {
    patterns: patterns.map((urlPattern) => ({ urlPattern })),
    handleAuthRequests: proxyLogin !== null,
  });
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

/** The login is given once to each request; a proxy that asks again has refused it. */
function answerProxy(session: CdpSession, login: ProxyLogin): void {
  const answeredMax = 1_000;
  const answered = new Set<string>();
  session.on("Fetch.authRequired", ({ requestId, authChallenge }) => {
    const isFirst = authChallenge.source === "Proxy" && !answered.has(requestId);
    if (answered.size >= answeredMax) answered.clear();
    answered.add(requestId);
    const refused = authChallenge.source === "Proxy" ? "CancelAuth" : "Default";
    session.tell("Fetch.continueWithAuth", {
      requestId,
      authChallengeResponse: isFirst ? { response: "ProvideCredentials", ...login } : { response: refused },
    });
  });
}
