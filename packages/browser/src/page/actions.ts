/** Click, type, press and wait: look, act with real input, and see what it led to. */
import { ToolError } from "../errors.ts";
import { needsApplication } from "./applications.ts";
import type { Deadline } from "./deadline.ts";
import { type Frame, isContextGone } from "./frame.ts";
import type { Found, PageState } from "./inpage/agent.ts";
import { clickAt, type MouseButton, pressChord, typeKeys } from "./input.ts";
import type { Page } from "./page.ts";
import { askFrame, revealShadows } from "./search.ts";
import { framesFor, isRef, notFound, placeInPage } from "./targets.ts";

/** How long an action waits for a document that it began to load; the result says when it is still loading. */
const loadWaitMsMax = 5_000;
/** While an element is awaited, the page is looked at again at each change and at least this often. */
const lookAgainMs = 100;
/** Content that comes late may bring closed shadow roots; they are looked for at every so many looks. */
const looksPerReveal = 5;
/** A window that was asked for is there soon, or it is one that was open already. */
const popupWaitMsMax = 1_000;
/** How long an element is given to come to rest. */
const settleMsMax = 1_000;
/** A click that does not arrive is tried again so often; a list that is open takes the first one to close. */
const clicksLostMax = 3;
const invalidCharsMax = 500;
const alignments: ScrollLogicalPosition[] = ["nearest", "center", "end", "start"];

export interface ActionResult {
  url: string;
  title: string;
  /** The action led to a new document, so refs of the old one are gone. */
  navigated: boolean;
  stillLoading: boolean;
  /** The action opened a page, which is the active one now. */
  openedPage: boolean;
  matches: number;
}

export interface ClickOptions {
  target: string;
  button: MouseButton;
  modifiers: string[];
  doubleClick: boolean;
}

export interface TypeOptions {
  target: string;
  text: string;
  submit: boolean;
  slowly: boolean;
}

/** Waits in the page for a change; a document that goes away meanwhile is a change too. */
async function waitForChange(page: Page, deadline: Deadline): Promise<void> {
  const waitMs = Math.min(lookAgainMs, deadline.restMs);
  try {
    await page.mainFrame.call("changed", [waitMs], deadline.leftMs);
  } catch (error) {
    if (!isContextGone(error)) throw error;
    await page.until(() => page.hasReached("commit") && !page.isNavigating, waitMs);
  }
}

interface Look {
  attempt: number;
  checkMotion: boolean;
  leftMs: number;
}

interface Ready {
  frame: Frame;
  found: Found;
}

/** Asks the frames, in turn and again at each change, until the element is there and ready. */
async function whenReady(
  page: Page,
  target: string,
  deadline: Deadline,
  look: (frame: Frame, how: Look) => Promise<Found>,
): Promise<Ready> {
  // An animation that never ends need not move the element; and one that it does move may still be hit.
  let checkMotion = true;
  for (let attempt = 0; ; attempt++) {
    let seen: Ready | null = null;
    for (const frame of framesFor(page, target)) {
      const found = await askFrame(page, frame, deadline, ({ leftMs }) =>
        look(frame, { attempt, checkMotion, leftMs }),
      );
      if (found?.problem) throw new ToolError("invalid_request", found.problem);
      if (!found?.found) continue;
      const { state } = found.readiness!;
      if (state === "ready" || state === "done") return { frame, found };
      if (state === "unsuitable") throw unready(target, found);
      if (seen === null || state !== "hidden") seen = { frame, found };
      // What is hidden in one frame may be shown in the next.
      if (state === "hidden") continue;
      if (state === "moving") {
        await frame.call("settled", [target, Math.min(settleMsMax, deadline.restMs)], deadline.leftMs);
        checkMotion = false;
      }
      break;
    }
    if (seen?.found.readiness?.state === "moving" && !deadline.hasPassed) continue;
    const isRevealTurn = seen === null && attempt % looksPerReveal === 0;
    if (isRevealTurn && (await revealShadows(page, target, deadline))) continue;
    const isRefGone = seen === null && isRef(target);
    if (isRefGone || deadline.hasPassed) throw seen ? unready(target, seen.found) : notFound(target);
    await waitForChange(page, deadline);
  }
}

function unready(target: string, { readiness }: Found): ToolError {
  const reason = readiness && "reason" in readiness ? readiness.reason : "it keeps moving";
  const code = readiness?.state === "covered" ? "element_covered" : "element_not_actionable";
  const hint =
    readiness?.state === "covered"
      ? "Close or click what is in the way, or use evaluate to call the element's click()."
      : "Take a snapshot to see its state.";
  return new ToolError(code, `"${target}" cannot be used: ${reason}. ${hint}`);
}

/** Input that the browser itself keeps from the page, for a passkey or a screen to share, leaves no trace in it. */
function undelivered(target: string): ToolError {
  return new ToolError(
    "element_not_actionable",
    `The click on "${target}" did not reach the page: the browser shows a window of its own over it, ` +
      "for a passkey or the like. Navigate to close that, or use evaluate to call the element's click().",
  );
}

/** The page as it is right after the input; null when its document is already gone. */
async function seenIn(page: Page, frame: Frame, deadline: Deadline): Promise<PageState | null> {
  try {
    const state = await frame.call("state", [], deadline.leftMs);
    if (state.invalid)
      page.report("form", `A field is not valid: ${state.invalid.slice(0, invalidCharsMax)}`);
    // Input goes before everything else in the browser, so a form that it sent is still in line now.
    return state.formSent
      ? { ...(await frame.call("stateAfter", [], deadline.leftMs)), hit: state.hit }
      : state;
  } catch (error) {
    if (isContextGone(error) || (error instanceof ToolError && error.code === "page_closed")) return null;
    throw error;
  }
}

/**
 * Whether the page has taken the input. Thousands of console messages take the browser longer than the script that
 * writes them, so a page that still writes is left to go on.
 */
async function isTaken(page: Page, input: Promise<unknown>): Promise<boolean> {
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

function stillBusy(page: Page, matches: number): ActionResult {
  page.report(
    "hang",
    "The page is still busy with this: it writes to the console without a pause. Look again later.",
  );
  const { url } = page.mainFrame;
  return { url, title: "", navigated: false, stillLoading: true, openedPage: false, matches };
}

/** Where the action led to a navigation, waits until its document is there. */
async function conclude(
  page: Page,
  before: Before,
  deadline: Deadline,
  seen: PageState | null,
): Promise<Omit<ActionResult, "matches">> {
  const openedPage = await waitForPopup(page, before, deadline);
  const hasLeft = () => page.navigationsBegun > before.navigations || page.documents !== before.documents;
  const now = seen ?? (await seenIn(page, page.mainFrame, deadline));
  if (now && !hasLeft())
    return { url: now.url, title: now.title, navigated: false, stillLoading: false, openedPage };
  const isLoaded = await waitForLoad(page, deadline);
  const after = page.session.ended ? null : await seenIn(page, page.mainFrame, deadline);
  return {
    url: after?.url ?? "",
    title: after?.title ?? "",
    navigated: page.session.ended !== null || page.documents !== before.documents,
    stillLoading: !isLoaded,
    openedPage,
  };
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

interface Before {
  navigations: number;
  documents: number;
  moves: number;
  popupsAsked: number;
  popupsArrived: number;
}

/** A window that the action asked for is there, and its document too, when the action returns. */
async function waitForPopup(page: Page, before: Before, deadline: Deadline): Promise<boolean> {
  const hasArrived = () => page.popupsArrived > before.popupsArrived;
  if (page.popupsAsked === before.popupsAsked || page.session.ended) return hasArrived();
  if (!(await page.until(hasArrived, Math.min(popupWaitMsMax, deadline.restMs)))) return false;
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

const stateBefore = (page: Page): Before => ({
  navigations: page.navigationsBegun,
  documents: page.documents,
  moves: page.moves,
  popupsAsked: page.popupsAsked,
  popupsArrived: page.popupsArrived,
});

export async function click(page: Page, options: ClickOptions, deadline: Deadline): Promise<ActionResult> {
  const before = stateBefore(page);
  let lost = 0;
  for (let attempt = 0; ; attempt++) {
    const { frame, found } = await whenReady(page, options.target, deadline, (each, look) =>
      each.call(
        "click",
        [options.target, alignments[(look.attempt + attempt) % alignments.length]!, look.checkMotion],
        look.leftMs,
      ),
    );
    const readiness = found.readiness!;
    let seen: PageState | null = null;
    if (readiness.state === "ready") {
      const place = await placeInPage(page, { frame, ...readiness, mustBeHit: true }, deadline);
      if (!(await isTaken(page, clickAt(page.session, { ...options, ...place }, deadline.leftMs))))
        return stillBusy(page, found.matches);
      seen = page.session.ended ? null : await seenIn(page, frame, deadline);
    }
    const isSamePlace = page.navigationsBegun === before.navigations && page.moves === before.moves;
    const isMissed = seen?.hit === false && page.navigationsBegun === before.navigations;
    const isLost = seen?.hit === null && isSamePlace;
    if (isLost && ++lost >= clicksLostMax) throw undelivered(options.target);
    if (!isMissed && !isLost) {
      const state = frame === page.mainFrame ? seen : null;
      return { ...(await conclude(page, before, deadline, state)), matches: found.matches };
    }
    if (deadline.hasPassed)
      throw new ToolError(
        "element_covered",
        `"${options.target}" was not hit: ${seen!.reason}. Take a snapshot.`,
      );
    await frame.call("settled", [options.target, Math.min(500, deadline.restMs)], deadline.leftMs);
  }
}

async function insert(frame: Frame, { target, text }: TypeOptions, deadline: Deadline): Promise<void> {
  await frame.session.send("Input.insertText", { text }, deadline.leftMs);
  if (text.includes("\n")) await frame.call("caretToEnd", [target], deadline.leftMs);
}

export async function type(page: Page, options: TypeOptions, deadline: Deadline): Promise<ActionResult> {
  const before = stateBefore(page);
  const { frame, found } = await whenReady(page, options.target, deadline, (each, look) =>
    each.call("type", [options.target, options.text], look.leftMs),
  );
  const sent: Promise<unknown>[] = [];
  if (found.readiness!.state === "ready") {
    if (options.slowly || options.text === "") {
      // What was selected is removed first; typing over it would do the same, but not for an empty text.
      sent.push(pressChord(frame.session, "Delete", deadline.leftMs));
      sent.push(typeKeys(frame.session, options.text, deadline.leftMs));
    } else sent.push(insert(frame, options, deadline));
  }
  // What Enter does depends on where the caret is.
  if (options.submit && options.text.includes("\n") && !(await isTaken(page, Promise.all(sent))))
    return stillBusy(page, found.matches);
  if (options.submit) sent.push(pressChord(frame.session, "Enter", deadline.leftMs));
  if (!(await isTaken(page, Promise.all(sent)))) return stillBusy(page, found.matches);
  // The form is the frame's, and so is what is wrong with it.
  if (options.submit && frame !== page.mainFrame) await seenIn(page, frame, deadline);
  return { ...(await conclude(page, before, deadline, null)), matches: found.matches };
}

export async function press(page: Page, chord: string, deadline: Deadline): Promise<ActionResult> {
  const before = stateBefore(page);
  await page.mainFrame.agent(deadline.leftMs);
  if (!(await isTaken(page, pressChord(page.session, chord, deadline.leftMs)))) return stillBusy(page, 0);
  return { ...(await conclude(page, before, deadline, null)), matches: 0 };
}

export type WantedState = "visible" | "hidden" | "attached" | "detached";

export async function waitFor(
  page: Page,
  target: string,
  state: WantedState,
  deadline: Deadline,
): Promise<number> {
  const wantsPresence = state === "visible" || state === "attached";
  for (let attempt = 0; ; attempt++) {
    const answers: { reached: boolean; found: boolean; matches: number }[] = [];
    for (const frame of framesFor(page, target)) {
      const answer = await askFrame(page, frame, deadline, (limited) =>
        frame.call("isInState", [target, state], limited.leftMs),
      );
      if (answer?.problem) throw new ToolError("invalid_request", answer.problem);
      if (answer) answers.push(answer);
    }
    const isReached = wantsPresence
      ? answers.some(({ reached }) => reached)
      : answers.every(({ reached }) => reached);
    if (isReached) return answers.reduce((sum, { matches }) => sum + matches, 0);
    const isRevealTurn = wantsPresence && attempt % looksPerReveal === 0;
    if (isRevealTurn && (await revealShadows(page, target, deadline))) continue;
    if (deadline.hasPassed)
      throw deadline.expired(`"${target}" did not become ${state}. Take a snapshot to see what is there.`);
    await waitForChange(page, deadline);
  }
}
