/** Going to an address, back and forward, each until the document is there. */
import type { Result } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import { blockedMark } from "../launch/address-gate.ts";
import { type UrlPolicy, whyBlocked } from "../policy/url-policy.ts";
import type { Browser } from "./browser.ts";
import type { Deadline } from "./deadline.ts";
import { isContextGone } from "./frame.ts";
import type { LoadStage } from "./loading.ts";
import type { Page } from "./page.ts";

/** After the document is parsed, its pictures and styles are waited for this long; the page is usable without. */
const loadGraceMs = 5_000;
/** A document that comes bit by bit for longer than this is looked at while it still comes. */
const parseGraceMs = 10_000;
/** How long a page that has loaded may be busy before it is told of without its title. */
const busyMsMax = 5_000;
/** How long a page is given to be left before its script is stopped, and how often before it is given up. */
const leaveWaitMs = 2_000;
const stuckLooksMax = 2;
/** How long the answers are waited for that a page asks its server for while it loads. */
const answersMsMax = 500;

export interface NavigateResult {
  url: string;
  title: string;
  status: number | null;
  still_loading: boolean;
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
  if (errorText.startsWith(blockedMark))
    return new ToolError(
      "url_blocked",
      `${url} could not be opened: ${errorText.slice(blockedMark.length)}. The options --allow-link-local, --allow-host and --block-host decide about that.`,
    );
  if (/BLOCKED_BY_CLIENT|UNSAFE_REDIRECT/.test(errorText))
    return new ToolError("url_blocked", `${url} leads to an address that is blocked (${errorText}).`);
  const hint = hints.find(([pattern]) => pattern.test(errorText))?.[1] ?? "Check the address and try again.";
  return new ToolError("navigation_failed", `${url} could not be opened: ${errorText}. ${hint}`);
}

/** A page that is busy with a script of its own, or changes its document again and again, is told of without its title. */
async function describe(page: Page, still_loading: boolean, deadline: Deadline): Promise<NavigateResult> {
  const { status } = page;
  try {
    const limitMs = Math.min(busyMsMax, deadline.leftMs);
    return { ...(await page.mainFrame.call("state", [], limitMs)), status, still_loading };
  } catch (error) {
    const isBusy = error instanceof ToolError && error.code === "timeout";
    if (!isBusy && !isContextGone(error)) throw error;
    if (isBusy) page.report("hang", "The page is there, but a script of its own keeps it busy.");
    return { url: page.mainFrame.url, title: "", status, still_loading: true };
  }
}

/** The agent is made while its document still loads, so that what looks at the page afterwards need not wait for it. */
function prepareAgent(page: Page, loaderId: string, deadline: Deadline): void {
  page
    .until(() => page.documentLoaderId === loaderId, deadline.restMs)
    // Whoever asks for the agent meanwhile waits for this one, so it gets no longer than a page that still loads.
    .then((isThere) => (isThere ? page.mainFrame.agent(Math.min(parseGraceMs, deadline.leftMs)) : null))
    // The next call that needs the agent creates it again, and reports the error.
    .catch(() => {});
}

async function waitUntil(
  page: Page,
  stage: LoadStage,
  loaderId: string,
  deadline: Deadline,
): Promise<boolean> {
  const isLenient = stage === "load";
  const needed = isLenient ? "domcontentloaded" : stage;
  const waitMs = isLenient ? Math.min(parseGraceMs, deadline.restMs) : deadline.restMs;
  const isThere = await page.until(() => page.hasReached(needed, loaderId), waitMs);
  if (!isThere && isLenient && !deadline.hasPassed && page.hasReached("commit", loaderId)) return false;
  if (!isThere)
    throw deadline.expired(`${page.mainFrame.url} is still loading. Take a snapshot to see what is there.`);
  if (stage !== "load") return true;
  return page.until(
    () => page.hasReached("load", loaderId) && !page.isNavigating,
    Math.min(loadGraceMs, deadline.restMs),
  );
}

/** Many pages fetch what they show; what loading began is waited for, and what its answers lead to. */
async function waitForContent(page: Page, deadline: Deadline): Promise<void> {
  const patience = deadline.within(answersMsMax);
  const isDone = () => page.requests.isDoneSince(0) || page.isNavigating;
  while (!isDone() && !patience.hasPassed) {
    await page.until(isDone, patience.restMs);
    if (!page.isNavigating) await page.mainFrame.call("frame", [], deadline.leftMs);
  }
}

/**
 * A document that sends the browser on at once is not what was asked for; the one it leads to is. A refresh is
 * announced after the load event, but before the page answers what is asked of it then.
 */
async function arrive(
  page: Page,
  stage: LoadStage,
  loaderId: string,
  deadline: Deadline,
): Promise<NavigateResult> {
  const isLoaded = await waitUntil(page, stage, loaderId, deadline);
  if (stage === "load" && isLoaded) await waitForContent(page, deadline).catch(() => {});
  let result = await describe(page, !isLoaded, deadline);
  const following = deadline.within(loadGraceMs);
  const hasArrived = () => page.hasReached("load") && !page.isNavigating;
  while (stage === "load" && isLoaded && page.isNavigating && !following.hasPassed)
    result = await describe(page, !(await page.until(hasArrived, following.restMs)), deadline);
  return { ...result, still_loading: result.still_loading || (stage === "load" && page.isNavigating) };
}

type Begun = Result<"Page.navigate">;

/** What it resolves with, or null when that takes longer. */
function within<T>(work: Promise<T>, timeoutMs: number): Promise<T | null> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), timeoutMs);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

/**
 * Waits for a step of leaving a page. A page whose script does not let it be left, in beforeunload or pagehide, has
 * that script stopped; null when even that does not help.
 */
async function freeing<T>(page: Page, attempt: (timeoutMs: number) => Promise<T | null>): Promise<T | null> {
  for (let looks = 0; looks < stuckLooksMax; looks++) {
    const done = await attempt(leaveWaitMs);
    if (done) return done;
    page.session.tell("Runtime.terminateExecution");
  }
  return null;
}

/** Sends the page on its way, until the new document has taken the old one's place; a page that is stuck is given up. */
async function begin(
  browser: Browser,
  page: Page,
  url: string,
  deadline: Deadline,
): Promise<{ page: Page; answer: Begun }> {
  const { documentRequests } = page;
  const sent = page.session.send("Page.navigate", { url }, deadline.leftMs);
  const answer = await freeing(page, async (timeoutMs) => {
    const early = await within(sent, timeoutMs);
    // Once the server was asked, it is the server's turn.
    return early ?? (page.documentRequests > documentRequests ? sent : null);
  });
  if (answer && (answer.errorText || !answer.loaderId)) return { page, answer };
  const hasLeft =
    answer &&
    (await freeing(page, (timeoutMs) =>
      page.until(() => page.hasReached("commit", answer.loaderId), timeoutMs),
    ));
  if (answer && hasLeft) return { page, answer };
  sent.catch(() => {});
  const fresh = await browser.giveUp(page);
  return { page: fresh, answer: await fresh.session.send("Page.navigate", { url }, deadline.leftMs) };
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
  const leaving = await browser.pageToLeave();
  const url = browser.gate.takeLogin(address);
  leaving.status = null;
  const { downloadsBegun } = browser;
  const { page, answer } = await begin(browser, leaving, url, deadline);
  if (answer.errorText) {
    if (answer.isDownload || browser.downloadsBegun > downloadsBegun) return describe(page, false, deadline);
    throw failureOf(url, browser.explainFailure(url, answer.errorText), page.status);
  }
  // Without a loader the address is within the same document.
  if (!answer.loaderId) return describe(page, false, deadline);
  prepareAgent(page, answer.loaderId, deadline);
  return arrive(page, options.until, answer.loaderId, deadline);
}

/** One step in the history. A popup that has nowhere to go back to is closed, and its opener is active again. */
export async function step(browser: Browser, by: -1 | 1, deadline: Deadline): Promise<NavigateResult> {
  const page = await browser.pageToLeave();
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
  const { documents, moves, documentRequests } = page;
  const hasMoved = () => page.documents !== documents || (page.moves !== moves && !page.isNavigating);
  await page.session.send("Page.navigateToHistoryEntry", { entryId: entry.id }, deadline.leftMs);
  const hasBegun = () => hasMoved() || page.documentRequests > documentRequests;
  await freeing(page, (timeoutMs) => page.until(hasBegun, Math.min(timeoutMs, deadline.restMs)));
  const isThere = await page.until(hasMoved, deadline.restMs);
  if (!isThere) throw deadline.expired(`Going ${by === -1 ? "back" : "forward"} did not finish.`);
  const isLoaded = await page.until(
    () => page.hasReached("domcontentloaded"),
    Math.min(loadGraceMs, deadline.restMs),
  );
  if (isLoaded) await waitForContent(page, deadline).catch(() => {});
  return describe(page, !isLoaded, deadline);
}
