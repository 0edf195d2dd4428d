/** Going to an address, back and forward, each until the document is there. */
import { ToolError } from "../errors.ts";
import { type UrlPolicy, whyBlocked } from "../policy/url-policy.ts";
import type { Browser } from "./browser.ts";
import type { Deadline } from "./deadline.ts";
import type { LoadStage, Page } from "./page.ts";

/** After the document is parsed, its pictures and styles are waited for this long; the page is usable without. */
const loadGraceMs = 5_000;

export interface NavigateResult {
  url: string;
  title: string;
  status: number | null;
  stillLoading: boolean;
}

/** "example.com" becomes https, a loopback name http; anything with a scheme stays as it is. */
export function completeUrl(address: string): string {
  const text = address.trim();
  if (/^[a-z][a-z0-9+.-]*:/i.test(text) && !/^[\w.-]+:\d+(\/|$)/.test(text)) return text;
  const isLoopback = /^(localhost|127(\.\d+){3}|\[::1\]|0\.0\.0\.0)([:/]|$)/i.test(text);
  return `${isLoopback ? "http" : "https"}://${text}`;
}

function checkAllowed(url: string, policy: UrlPolicy): void {
  const reason = whyBlocked(url, policy);
  if (reason === null) return;
  throw new ToolError(/not a valid URL/.test(reason) ? "invalid_request" : "url_blocked", `${reason}.`);
}

const hints: [RegExp, string][] = [
  [/NAME_NOT_RESOLVED/, "Check the host name."],
  [/CONNECTION_REFUSED/, "Nothing listens there; start the server first."],
  [/PROXY|SOCKS|TUNNEL|status 407/, "The proxy of the tool (--proxy) failed, not the site."],
  [/SSL_PROTOCOL/, "The server does not speak https there; try http://."],
  [
    /CERT/,
    "Its certificate is not trusted; use http:// where the server offers it, or start the tool with --ignore-https-errors.",
  ],
  [/status 401/, "The server asks for a login: write it into the address, http://user:password@host/."],
  [/HTTP_RESPONSE_CODE_FAILURE/, "The server answered with an error and an empty page."],
  [/ABORTED/, "The server sent no document to show (status 204, or a redirect to another application)."],
  [/TOO_MANY_REDIRECTS/, "The server redirects in a circle."],
];

function failureOf(url: string, netError: string, status: number | null): ToolError {
  const errorText = status === null ? netError : `${netError}, status ${status}`;
  if (/BLOCKED_BY_CLIENT|UNSAFE_REDIRECT/.test(errorText))
    return new ToolError("url_blocked", `${url} leads to an address that is blocked (${errorText}).`);
  const hint = hints.find(([pattern]) => pattern.test(errorText))?.[1] ?? "Check the address and try again.";
  return new ToolError("navigation_failed", `${url} could not be opened: ${errorText}. ${hint}`);
}

async function describe(page: Page, stillLoading: boolean, deadline: Deadline): Promise<NavigateResult> {
  const { url, title } = await page.mainFrame.call("state", [], deadline.leftMs);
  return { url, title, status: page.status, stillLoading };
}

/** The agent is made while its document still loads, so that what looks at the page afterwards need not wait for it. */
function prepareAgent(page: Page, loaderId: string, deadline: Deadline): void {
  page
    .until(() => page.documentLoaderId === loaderId, deadline.restMs)
    .then((isThere) => (isThere ? page.mainFrame.agent(deadline.leftMs) : null))
    // Whoever needs the agent makes it again, and reports what is wrong.
    .catch(() => {});
}

async function waitUntil(
  page: Page,
  stage: LoadStage,
  loaderId: string,
  deadline: Deadline,
): Promise<boolean> {
  const needed = stage === "load" ? "domcontentloaded" : stage;
  const isThere = await page.until(() => page.hasReached(needed, loaderId), deadline.restMs);
  if (!isThere)
    throw deadline.expired(`${page.mainFrame.url} is still loading. Take a snapshot to see what is there.`);
  if (stage !== "load") return true;
  // A document that sends the browser on at once is not what was asked for; the one it leads to is.
  return page.until(
    () => page.hasReached("load", loaderId) && !page.isNavigating,
    Math.min(loadGraceMs, deadline.restMs),
  );
}

export interface NavigateOptions {
  url: string;
  until: LoadStage;
}

export async function navigate(
  browser: Browser,
  options: NavigateOptions,
  deadline: Deadline,
): Promise<NavigateResult> {
  const address = completeUrl(options.url);
  checkAllowed(address, browser.options.urlPolicy);
  const page = await browser.page();
  const url = browser.gate.takeLogin(address);
  page.status = null;
  const { downloadsBegun } = browser;
  const answer = await page.session.send("Page.navigate", { url }, deadline.leftMs);
  if (answer.errorText) {
    if (answer.isDownload || browser.downloadsBegun > downloadsBegun) return describe(page, false, deadline);
    throw failureOf(url, answer.errorText, page.status);
  }
  // Without a loader the address is within the same document.
  if (!answer.loaderId) return describe(page, false, deadline);
  prepareAgent(page, answer.loaderId, deadline);
  const isLoaded = await waitUntil(page, options.until, answer.loaderId, deadline);
  return describe(page, !isLoaded, deadline);
}

/** One step in the history. A popup that has nowhere to go back to is closed, and its opener is active again. */
export async function step(browser: Browser, by: -1 | 1, deadline: Deadline): Promise<NavigateResult> {
  const page = await browser.page();
  const { currentIndex, entries } = await page.session.send(
    "Page.getNavigationHistory",
    undefined,
    deadline.leftMs,
  );
  const entry = entries[currentIndex + by];
  if (!entry) {
    if (by === -1 && page.openerId && browser.pages.has(page.openerId)) {
      await browser.closePages([page]);
      return describe(await browser.page(), false, deadline);
    }
    throw new ToolError("invalid_request", `There is no page to go ${by === -1 ? "back" : "forward"} to.`);
  }
  checkAllowed(entry.url, browser.options.urlPolicy);
  const { documents, moves } = page;
  await page.session.send("Page.navigateToHistoryEntry", { entryId: entry.id }, deadline.leftMs);
  const isThere = await page.until(
    () => page.documents !== documents || (page.moves !== moves && !page.isNavigating),
    deadline.restMs,
  );
  if (!isThere) throw deadline.expired(`Going ${by === -1 ? "back" : "forward"} did not finish.`);
  const isLoaded = await page.until(
    () => page.hasReached("domcontentloaded"),
    Math.min(loadGraceMs, deadline.restMs),
  );
  return describe(page, !isLoaded, deadline);
}
