/** Holds every target of the browser to the URL policy: redirects, page-made navigations and subresources included. */
import type { CdpSession, EventParams } from "../cdp/connection.ts";
import type { ProxyLogin } from "../launch/proxy.ts";
import type { Notices } from "../page/notices.ts";
import { Logins } from "./logins.ts";
import { suspectPatterns, type UrlPolicy, whyBlocked } from "./url-policy.ts";

export interface GateOptions {
  policy: UrlPolicy;
  /** For a proxy that asks for one; every request is looked at then, as each may be the one that is asked. */
  proxyLogin: ProxyLogin | null;
  notices: Notices;
}

/** What is answered in place of the servers, or done to their answers. */
export interface Mock {
  /** A part of the address; * stands for anything. */
  url: string;
  status?: number;
  body?: string;
  headers?: Record<string, string>;
  delay_ms?: number;
  /** The request fails as if the server could not be reached. */
  fail?: boolean;
}

export const networkSpeeds = {
  online: { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 },
  offline: { offline: true, latency: 0, downloadThroughput: 0, uploadThroughput: 0 },
  /** A bad mobile connection: 400 ms, 400 kbit/s. */
  slow: { offline: false, latency: 400, downloadThroughput: 50_000, uploadThroughput: 50_000 },
};

function isMeant(mock: Mock, url: string): boolean {
  const parts = mock.url.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(parts.join(".*")).test(url);
}

/** A link may bring a login along too. */
const loginInLink = { urlPattern: "*://*:*@*", resourceType: "Document" } as const;

/** What the requests of all targets pass through; only those that match a pattern are stopped and looked at. */
export class RequestGate {
  readonly #options: GateOptions;
  readonly #logins = new Logins();
  readonly #sessions = new Set<CdpSession>();

  #mocks: Mock[] = [];
  #speed: keyof typeof networkSpeeds = "online";

  constructor(options: GateOptions) {
    this.#options = options;
  }

  get mocks(): Mock[] {
    return this.#mocks;
  }

  set mocks(mocks: Mock[]) {
    this.#mocks = mocks;
    for (const session of this.#sessions) this.#enable(session);
  }

  set speed(speed: keyof typeof networkSpeeds) {
    this.#speed = speed;
    for (const session of this.#sessions)
      session.tell("Network.emulateNetworkConditions", networkSpeeds[speed]);
  }

  attach(session: CdpSession): void {
    for (const known of this.#sessions) if (known.ended) this.#sessions.delete(known);
    this.#sessions.add(session);
    const { proxyLogin } = this.#options;
    session.on("Fetch.requestPaused", (event) => this.#paused(session, event));
    if (proxyLogin) answerAuth(session, proxyLogin);
    this.#enable(session);
    if (this.#speed !== "online")
      session.tell("Network.emulateNetworkConditions", networkSpeeds[this.#speed]);
  }

  /** The address to go to; a login in it is sent with every request to its origin from now on. */
  takeLogin(address: string): string {
    const { url, isNew } = this.#logins.take(address);
    if (isNew) for (const session of this.#sessions) this.#enable(session);
    return url;
  }

  #enable(session: CdpSession): void {
    const { policy, proxyLogin } = this.#options;
    const origins = [...this.#logins.origins].map((origin) => `${origin}/*`);
    const mocked = this.#mocks.map(({ url }) => `*${url.replace(/[\\?]/g, "\\$&")}*`);
    const patterns = proxyLogin ? ["*"] : [...suspectPatterns(policy), ...origins, ...mocked];
    session.tell("Fetch.enable", {
      patterns: [...patterns.map((urlPattern) => ({ urlPattern })), loginInLink],
      handleAuthRequests: proxyLogin !== null,
    });
  }

  #paused(session: CdpSession, event: EventParams<"Fetch.requestPaused">): void {
    const { requestId, request } = event;
    const { policy, notices } = this.#options;
    const reason = whyBlocked(request.url, policy);
    if (reason !== null) {
      notices.add("blocked", `A request to ${request.url.slice(0, 200)} was blocked: ${reason}.`);
      session.tell("Fetch.failRequest", { requestId, errorReason: "BlockedByClient" });
      return;
    }
    const mock = this.#mocks.find((each) => isMeant(each, request.url));
    if (!mock) this.#letPass(session, event);
    else setTimeout(() => this.#answer(session, event, mock), mock.delay_ms ?? 0);
  }

  #answer(session: CdpSession, event: EventParams<"Fetch.requestPaused">, mock: Mock): void {
    const { requestId } = event;
    const { status, body, headers = {}, fail } = mock;
    if (fail) session.tell("Fetch.failRequest", { requestId, errorReason: "ConnectionFailed" });
    else if (status === undefined && body === undefined) this.#letPass(session, event);
    else
      session.tell("Fetch.fulfillRequest", {
        requestId,
        responseCode: status ?? 200,
        // A page may be of another origin than what it asks for.
        responseHeaders: Object.entries({ "access-control-allow-origin": "*", ...headers }).map(
          ([name, value]) => ({ name, value }),
        ),
        body: Buffer.from(body ?? "").toString("base64"),
      });
  }

  #letPass(session: CdpSession, { requestId, request }: EventParams<"Fetch.requestPaused">): void {
    const login = this.#logins.headerFor(this.takeLogin(request.url));
    const isOwn = Object.keys(request.headers).some((name) => name.toLowerCase() === "authorization");
    if (login === undefined || isOwn) {
      session.tell("Fetch.continueRequest", { requestId });
      return;
    }
    const headers = Object.entries(request.headers).map(([name, value]) => ({ name, value: String(value) }));
    session.tell("Fetch.continueRequest", {
      requestId,
      headers: [...headers, { name: "Authorization", value: login }],
    });
  }
}

/** The proxy is given the login once for each request; one that asks again has refused it. A server gets none. */
function answerAuth(session: CdpSession, login: ProxyLogin): void {
  const answeredMax = 1_000;
  const answered = new Set<string>();
  session.on("Fetch.authRequired", ({ requestId, authChallenge }) => {
    const isFirst = authChallenge.source === "Proxy" && !answered.has(requestId);
    if (answered.size >= answeredMax) answered.clear();
    answered.add(requestId);
    session.tell("Fetch.continueWithAuth", {
      requestId,
      authChallengeResponse: isFirst
        ? { response: "ProvideCredentials", ...login }
        : { response: "CancelAuth" },
    });
  });
}
