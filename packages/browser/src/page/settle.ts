/** What an action led to: a new document, a new page, answers of the server, and changes of the page. */
import { z } from "zod";
import { ToolError } from "../errors.ts";
import { needsApplication } from "./applications.ts";
import type { Deadline } from "./deadline.ts";
import { type Frame, isContextGone } from "./frame.ts";
import type { Changes } from "./inpage/changes.ts";
import type { After, Standing } from "./inpage/contract.ts";
import type { Page } from "./page.ts";

/** How long an action waits for a document that it began to load; the result says when it is still loading. */
const loadWaitMsMax = 5_000;
/** How long an action waits for the answers to requests that it made. */
const requestWaitMsMax = 500;
/**
 * How long an action waits for the page to show something of it, while the page has a timer running that is due within
 * half a second: longer than that, because a busy machine runs timers late.
 */
const reactionWaitMsMax = 1_500;
/** How long a frame that was not acted on is waited for; one that hangs shows nothing new. */
const otherFrameMsMax = 300;
const framesMax = 20;
/** A window that was asked for is there soon, or it is one that was open already. */
const popupWaitMsMax = 1_000;
const chooserWaitMsMax = 500;
const invalidCharsMax = 500;
const momentaryCharsMax = 300;

/** What callers are told of an action. */
export const ActionResult = z.object({
  url: z.string(),
  title: z.string(),
  navigated: z.boolean().describe("The page is a new document; refs of earlier snapshots are gone"),
  still_loading: z.boolean(),
  opened_page: z
    .boolean()
    .describe("A page was opened and is the active one now; url and title are of the old one"),
  matches: z.number().int().describe("How many elements matched the target; the first visible one was used"),
  changes: z
    .string()
    .describe(
      "What changed on the page, as lines of the snapshot: + new, ~ changed, - gone; empty for nothing",
    ),
  changes_cut: z.boolean().describe("More changed than is listed"),
  changes_partial: z.boolean().describe("The page is so large that only a part of it was compared"),
  value: z.string().nullable().optional().describe("What a field holds after it was typed into"),
});
export type ActionResult = z.output<typeof ActionResult>;

/** What several steps of one action told. */
export const inLines = (...told: (string | undefined)[]) => told.filter(Boolean).join("\n");

/** An action that showed nothing yet. */
const nothingYet = { changes: "", changes_cut: false, changes_partial: false };

export interface Before {
  navigations: number;
  documents: number;
  moves: number;
  popupsAsked: number;
  popupsArrived: number;
  requests: number;
}

/** Before an action: what the page is compared with afterwards. */
export async function stateBefore(page: Page, deadline: Deadline): Promise<Before> {
  await inOtherFrames(page, [page.mainFrame], (frame) =>
    frame.call("prepare", [], Math.min(otherFrameMsMax, deadline.leftMs)),
  );
  return {
    navigations: page.navigationsBegun,
    documents: page.documents,
    moves: page.moves,
    popupsAsked: page.popupsAsked,
    popupsArrived: page.popupsArrived,
    requests: page.requests.begun,
  };
}

/** Asks all frames but these at once; those that are gone or hang are left out. */
async function inOtherFrames<T>(page: Page, but: Frame[], ask: (frame: Frame) => Promise<T>): Promise<T[]> {
  const others = [...page.frames.values()].filter((frame) => !but.includes(frame)).slice(0, framesMax);
  const answers = await Promise.allSettled(others.map(ask));
  return answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
}

/** The page once it has drawn what the input brought about; null when its document is already gone. */
export async function lookAfter(
  page: Page,
  frame: Frame,
  deadline: Deadline,
  field: { target: string | null } | null = null,
): Promise<After | null> {
  if (page.session.ended) return null;
  try {
    const after = await frame.call("after", [page.changesCharsMax, field], deadline.leftMs);
    if (after.invalid)
      page.report("form", `A field is not valid: ${after.invalid.slice(0, invalidCharsMax)}`);
    return after;
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

const isGone = (error: unknown) =>
  isContextGone(error) || (error instanceof ToolError && error.code === "page_closed");

export function reportMomentary(page: Page, texts: readonly string[]): void {
  for (const text of texts)
    page.report("momentary", `Shown for a moment: ${JSON.stringify(text.slice(0, momentaryCharsMax))}`);
}

/** The changes of a frame once more, from the same beginning. */
async function changesAgain(
  frame: Frame,
  page: Page,
  deadline: Deadline,
): Promise<(Changes & Standing) | null> {
  try {
    return await frame.call("changes", [page.changesCharsMax, true], deadline.leftMs);
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

/** What has changed since the last report in the frames that were not asked yet. */
export async function changesInFrames(page: Page, asked: Frame[], deadline: Deadline): Promise<Changes[]> {
  const limitMs = Math.min(otherFrameMsMax, deadline.leftMs);
  return inOtherFrames(page, asked, (frame) => frame.call("changes", [page.changesCharsMax, false], limitMs));
}

/**
 * Whether the page has taken the input. Thousands of console messages take the browser longer than the script that
 * writes them, so a page that still writes is left to go on.
 */
export async function isTaken(page: Page, input: Promise<unknown>): Promise<boolean> {
  const sentMs = performance.now();
  try {
    await input;
    return true;
  } catch (error) {
    if (!(error instanceof ToolError)) throw error;
    // Input that closes its own page is input that worked.
    if (error.code === "page_closed") return true;
    if (error.code === "timeout" && page.isWriting(sentMs)) return false;
    throw error;
  }
}

export function stillBusy(page: Page, matches: number): ActionResult {
  page.report(
    "hang",
    "The page is still busy with this: it writes to the console without a pause. Look again later.",
  );
  const { url } = page.mainFrame;
  return {
    url,
    title: "",
    navigated: false,
    still_loading: true,
    opened_page: false,
    matches,
    ...nothingYet,
  };
}

export interface Acted {
  before: Before;
  /** The frame that was acted on, and what it said right after; null when it was not asked or is gone. */
  frame: Frame;
  after: After | null;
  matches: number;
  value?: string | null;
}

/** Where the action led to a navigation, waits until its document is there; otherwise gathers what changed. */
export async function conclude(page: Page, acted: Acted, deadline: Deadline): Promise<ActionResult> {
  const { before, frame, matches } = acted;
  const opened_page = await waitForPopup(page, before, deadline);
  const hasLeft = () => page.navigationsBegun > before.navigations || page.documents !== before.documents;
  const rest = { opened_page, matches, value: acted.value ?? undefined };
  const look = (at: Frame) => (hasLeft() ? null : lookAfter(page, at, deadline));
  const inFrame = acted.after ?? (await look(frame));
  const main = frame === page.mainFrame ? inFrame : await look(page.mainFrame);
  if (inFrame?.isFileAsked && !page.fileChooser)
    await page.until(() => page.fileChooser !== null, Math.min(chooserWaitMsMax, deadline.restMs));
  if (main && !hasLeft()) {
    const changes = await gather(page, { frame, main, inFrame, before, hasLeft }, deadline);
    if (changes)
      return {
        url: main.url,
        title: main.title,
        navigated: false,
        still_loading: false,
        ...changes,
        ...rest,
      };
  }
  const isLoaded = await waitForLoad(page, deadline);
  const state = page.session.ended ? null : await stateOf(page, deadline);
  return {
    url: state?.url ?? "",
    title: state?.title ?? "",
    navigated: page.session.ended !== null || page.documents !== before.documents,
    still_loading: !isLoaded,
    ...nothingYet,
    ...rest,
  };
}

async function stateOf(page: Page, deadline: Deadline): Promise<{ url: string; title: string } | null> {
  try {
    return await page.mainFrame.call("state", [], deadline.leftMs);
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

interface Seen {
  frame: Frame;
  main: After;
  inFrame: After | null;
  before: Before;
  hasLeft: () => boolean;
}

/**
 * What changed, once the page has shown something of the action, or there is nothing to wait for any more. Null when
 * the page went elsewhere meanwhile.
 */
async function gather(page: Page, seen: Seen, deadline: Deadline) {
  const { frame, main, inFrame, before, hasLeft } = seen;
  const frames = [...new Set([page.mainFrame, frame])];
  const patience = deadline.within(reactionWaitMsMax);
  const answers = deadline.within(reactionWaitMsMax + requestWaitMsMax);
  let found: ((Changes & Standing) | null)[] = [{ ...main.changes, ...main }];
  if (frames.length > 1) found.push(inFrame && { ...inFrame.changes, ...inFrame });
  const tellMomentary = () => {
    for (const each of found) reportMomentary(page, each?.momentary ?? []);
  };
  tellMomentary();
  const isAnswered = () => page.requests.isDoneSince(before.requests);
  const isAwaited = () =>
    !patience.hasPassed &&
    found.every((each) => each?.isBare !== false) &&
    found.some((each) => each?.isPending === true);
  while (!answers.hasPassed && (!isAnswered() || isAwaited())) {
    if (isAnswered()) await firstReaction(page, frames, () => hasLeft() || !isAnswered(), patience);
    if (!isAnswered()) await waitForAnswers(page, isAnswered, answers);
    if (hasLeft()) return null;
    found = await Promise.all(frames.map((each) => changesAgain(each, page, deadline)));
    tellMomentary();
    if (!isAnswered()) break;
  }
  const others = await changesInFrames(page, frames, deadline);
  for (const each of others) reportMomentary(page, each.momentary);
  const all = [...found, ...others];
  return {
    changes: all.flatMap((each) => each?.lines ?? []).join("\n"),
    changes_cut: all.some((each) => each?.truncated === true),
    changes_partial: all.some((each) => each?.isPartial === true),
  };
}

/** Waits for the page to show something, to ask the server for something, or to leave. */
async function firstReaction(page: Page, frames: Frame[], hasBegun: () => boolean, patience: Deadline) {
  const waitMs = patience.restMs;
  const shown = frames.map((frame) => frame.call("reaction", [waitMs], waitMs + otherFrameMsMax));
  // A frame that is gone or late has nothing more to show.
  await Promise.race([Promise.allSettled(shown), page.until(hasBegun, waitMs)]);
}

async function waitForAnswers(page: Page, isAnswered: () => boolean, deadline: Deadline): Promise<void> {
  const waitMs = Math.min(requestWaitMsMax, deadline.restMs);
  await page.until(() => isAnswered() || page.isNavigating, waitMs);
  // What the page makes of the answer is there one frame later.
  if (!page.isNavigating) await page.mainFrame.call("frame", [], deadline.leftMs).catch(() => {});
}

export async function waitForLoad(page: Page, deadline: Deadline): Promise<boolean> {
  const waitMs = Math.min(loadWaitMsMax, deadline.restMs);
  try {
    return await page.until(() => !page.isNavigating && page.hasReached("domcontentloaded"), waitMs);
  } catch (error) {
    if (error instanceof ToolError && error.code === "page_closed") return true;
    throw error;
  }
}

/** A window that the action asked for is there, and its document too, when the action returns. */
async function waitForPopup(page: Page, before: Before, deadline: Deadline): Promise<boolean> {
  const hasArrived = () => page.popupsArrived > before.popupsArrived;
  if (page.popupsAsked === before.popupsAsked || page.session.ended) return hasArrived();
  if (!(await page.until(hasArrived, Math.min(popupWaitMsMax, deadline.restMs)))) {
    if (!page.lastPopup.isNamed)
      page.report("popup", `A window for ${page.lastPopup.url.slice(0, 200) || "about:blank"} did not open.`);
    return false;
  }
  const { url, page: popup } = page.lastPopup;
  if (popup && url && url !== "about:blank" && !needsApplication(url))
    await popup
      .until(
        () => popup.mainFrame.url !== "" && popup.hasReached("domcontentloaded"),
        Math.min(loadWaitMsMax, deadline.restMs),
      )
      .catch(() => false);
  return true;
}
