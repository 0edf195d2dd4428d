/** Click, hover, press, release and keys: find the target, send real input, and report the effect. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { After } from "./inpage/contract.ts";
import { pressChord } from "./input.ts";
import { type KeyStep, parseKeys } from "./keys.ts";
import type { Page } from "./page.ts";
import type { MouseButton, Point } from "./pointer.ts";
import { type Ready, whenReady } from "./ready.ts";
import { type ActionResult, conclude, isTaken, lookAfter, stateBefore, stillBusy } from "./settle.ts";
import { placeInPage } from "./targets.ts";

/** How often a click that does not arrive is retried; an open list uses up the first one to close. */
const clicksLostMax = 3;
/** How long an element that was missed is given to come to rest before it is tried again. */
const restMsMax = 200;
/** `:hover` may move an element away from the pointer that comes to it, and back again without end. */
const approachesMax = 4;
/** Less time than this is not enough for another click and a look at what it hit. */
const retryMsMin = 300;
const alignments: ScrollLogicalPosition[] = ["nearest", "center", "end", "start"];

export interface PointerOptions {
  /** Null: the position is one of the page, or the pointer stays where it is. */
  target: string | null;
  position: Point | null;
  button: MouseButton;
  modifiers: string[];
  clicks: number;
}

export type Purpose = "click" | "press" | "over";

/** The target made ready, and the place of the page where it is hit. */
export interface Aim {
  frame: Frame;
  matches: number;
  /** Null: done already, without the pointer. */
  place: Point | null;
}

export async function aim(
  page: Page,
  { target, position, clicks }: Pick<PointerOptions, "position" | "clicks"> & { target: string },
  { purpose, attempt }: { purpose: Purpose; attempt: number },
  deadline: Deadline,
): Promise<Aim> {
  const { frame, found }: Ready = await whenReady(page, target, deadline, (each, look) =>
    each.call(
      "click",
      [
        target,
        {
          alignment: alignments[(look.attempt + attempt) % alignments.length]!,
          checkMotion: look.checkMotion,
          position,
          purpose,
          clicks,
          timeoutMs: deadline.leftMs,
        },
      ],
      look.leftMs,
    ),
  );
  const readiness = found.readiness!;
  if (readiness.state !== "ready") return { frame, matches: found.matches, place: null };
  if (readiness.isStirNeeded && !page.pointer.held) await page.pointer.stir(deadline.leftMs);
  const place = await placeInPage(page, { frame, x: readiness.x, y: readiness.y, mustBeHit: true }, deadline);
  return { frame, matches: found.matches, place };
}

/** Input that the browser itself keeps from the page, for a passkey or a screen to share, leaves no trace in it. */
function undelivered(target: string): ToolError {
  return new ToolError(
    "element_not_actionable",
    `The click on "${target}" did not reach the page: the browser shows a window of its own over it, ` +
      "for a passkey or the like. Navigate to close that, or use evaluate to call the element's click().",
  );
}

const missed = (target: string, reason: string) =>
  new ToolError("element_covered", `"${target}" was not hit: ${reason}. Take a snapshot.`);

/** A position on the page, whatever element is there. */
async function checkPosition(page: Page, { x, y }: Point, deadline: Deadline): Promise<Point> {
  const { width, height } = await page.mainFrame.call("size", [], deadline.leftMs);
  if (x < 0 || y < 0 || x >= width || y >= height)
    throw new ToolError(
      "invalid_request",
      `The position ${x},${y} is outside of the page, which shows ${width} × ${height} pixels.`,
    );
  return { x, y };
}

/** Goes to the target first and looks again from there, until the pointer being there changes nothing any more. */
async function approach(
  page: Page,
  options: PointerOptions & { target: string },
  deadline: Deadline,
): Promise<Aim> {
  let aimed = await aim(page, options, { purpose: "click", attempt: 0 }, deadline);
  for (let i = 0; i < approachesMax && aimed.place; i++) {
    const at = aimed.place;
    await page.pointer.move(at, options.modifiers, deadline.leftMs);
    await aimed.frame.call("frame", [], deadline.leftMs);
    aimed = await aim(page, options, { purpose: "click", attempt: 0 }, deadline);
    if (aimed.place && aimed.place.x === at.x && aimed.place.y === at.y) break;
  }
  return aimed;
}

export async function click(page: Page, options: PointerOptions, deadline: Deadline): Promise<ActionResult> {
  const { target } = options;
  if (target === null) return clickAnywhere(page, options, deadline);
  const before = await stateBefore(page, deadline);
  let lost = 0;
  for (let attempt = 0; ; attempt++) {
    const aimed =
      attempt === 0
        ? await aim(page, { ...options, target }, { purpose: "click", attempt }, deadline)
        : await approach(page, { ...options, target }, deadline);
    const { frame, matches, place } = aimed;
    let after: After | null = null;
    if (place) {
      if (!(await isTaken(page, page.pointer.click(place, options, deadline.leftMs))))
        return stillBusy(page, matches);
      after = await lookAfter(page, frame, deadline);
    }
    const isSamePlace = page.navigationsBegun === before.navigations && page.moves === before.moves;
    const isMissed = after?.hit === false && page.navigationsBegun === before.navigations;
    const isLost = after?.hit === null && isSamePlace && place !== null;
    if (isLost && ++lost >= clicksLostMax) throw undelivered(target);
    if (!isMissed && !isLost) {
      if (after?.isUnclicked)
        page.report(
          "input",
          `The press reached "${target}", but the page got no click: ${after.reason || "it moved"}.`,
        );
      return conclude(page, { before, frame, after, matches }, deadline);
    }
    if (deadline.restMs < retryMsMin) throw missed(target, after?.reason || "no event reached it");
    await frame.call("settled", [target, Math.min(restMsMax, deadline.restMs)], deadline.leftMs);
  }
}

async function clickAnywhere(page: Page, options: PointerOptions, deadline: Deadline): Promise<ActionResult> {
  const place = await checkPosition(page, options.position ?? page.pointer.at, deadline);
  const before = await stateBefore(page, deadline);
  const frame = page.mainFrame;
  await frame.call("expectAnywhere", [options.clicks, deadline.leftMs], deadline.leftMs);
  if (!(await isTaken(page, page.pointer.click(place, options, deadline.leftMs)))) return stillBusy(page, 0);
  const after = await lookAfter(page, frame, deadline);
  if (after?.reason) page.report("input", `At ${place.x},${place.y} is ${after.reason}.`);
  return conclude(page, { before, frame, after, matches: 0 }, deadline);
}

/** Puts the pointer over the target, or at a place of the page. */
export async function hover(page: Page, options: PointerOptions, deadline: Deadline): Promise<ActionResult> {
  const { target, modifiers } = options;
  const before = await stateBefore(page, deadline);
  if (target === null) {
    await page.mainFrame.call("prepare", [], deadline.leftMs);
    const place = await checkPosition(page, options.position ?? page.pointer.at, deadline);
    await page.pointer.move(place, modifiers, deadline.leftMs);
    return conclude(page, { before, frame: page.mainFrame, after: null, matches: 0 }, deadline);
  }
  for (let attempt = 0; ; attempt++) {
    const how = { purpose: "over", attempt } as const;
    const { frame, matches, place } = await aim(page, { ...options, target }, how, deadline);
    if (!place) throw new ToolError("element_not_actionable", `"${target}" has no place to point at.`);
    await page.pointer.move(place, modifiers, deadline.leftMs);
    const after = await lookAfter(page, frame, deadline);
    // While something is dragged, the pointer hovers over that.
    const isOver =
      after === null || page.pointer.held !== null || page.pointer.isTouch
        ? true
        : await frame.call("isHovered", [target], deadline.leftMs);
    if (isOver) return conclude(page, { before, frame, after, matches }, deadline);
    if (deadline.hasPassed) throw missed(target, "it moves away from the pointer");
    await frame.call("settled", [target, Math.min(restMsMax, deadline.restMs)], deadline.leftMs);
  }
}

/** The button goes down and stays down until `release`. */
export async function press(page: Page, options: PointerOptions, deadline: Deadline): Promise<ActionResult> {
  const before = await stateBefore(page, deadline);
  const { frame, matches } = await pressAt(page, options, deadline);
  return conclude(page, { before, frame, after: null, matches }, deadline);
}

export async function pressAt(
  page: Page,
  options: PointerOptions,
  deadline: Deadline,
): Promise<{ frame: Frame; matches: number; place: Point }> {
  const { target, modifiers } = options;
  if (page.pointer.held) await page.pointer.release(options, deadline.leftMs);
  if (target === null) {
    const place = await checkPosition(page, options.position ?? page.pointer.at, deadline);
    await page.mainFrame.call("prepare", [], deadline.leftMs);
    await page.pointer.move(place, modifiers, deadline.leftMs);
    await page.pointer.press(options, deadline.leftMs);
    return { frame: page.mainFrame, matches: 0, place };
  }
  for (let attempt = 0; ; attempt++) {
    const how = { purpose: "press", attempt } as const;
    const { frame, matches, place } = await aim(page, { ...options, target }, how, deadline);
    if (!place) throw new ToolError("element_not_actionable", `"${target}" has no place to press.`);
    await page.pointer.move(place, modifiers, deadline.leftMs);
    await page.pointer.press(options, deadline.leftMs);
    const { hit, reason } = await frame.call("verdict", [], deadline.leftMs);
    if (hit !== false) return { frame, matches, place };
    await page.pointer.release(options, deadline.leftMs);
    if (deadline.hasPassed) throw missed(target, reason);
    await frame.call("settled", [target, Math.min(restMsMax, deadline.restMs)], deadline.leftMs);
  }
}

export async function release(
  page: Page,
  options: PointerOptions,
  deadline: Deadline,
): Promise<ActionResult> {
  if (!page.pointer.held)
    throw new ToolError("invalid_request", 'No button is down. Use the action "press" first, or "click".');
  if (options.target !== null || options.position !== null) await hover(page, options, deadline);
  const before = await stateBefore(page, deadline);
  await page.mainFrame.call("prepare", [], deadline.leftMs);
  const isDone = await isTaken(page, page.pointer.release(options, deadline.leftMs));
  if (!isDone) return stillBusy(page, 0);
  return conclude(page, { before, frame: page.mainFrame, after: null, matches: 0 }, deadline);
}

async function pressStep(page: Page, step: KeyStep, deadline: Deadline): Promise<void> {
  if ("chord" in step) return pressChord(page.session, step.chord, deadline.leftMs);
  await page.pointer.wheel(page.pointer.at, step.wheel, deadline.leftMs);
}

/** Keys go to what has the focus; with a target it is given the focus first, or for the wheel the pointer. */
export async function pressKeys(
  page: Page,
  { keys, target }: { keys: string; target: string | null },
  deadline: Deadline,
): Promise<ActionResult> {
  const steps = parseKeys(keys);
  const before = await stateBefore(page, deadline);
  let frame = page.mainFrame;
  let matches = 0;
  await frame.call("prepare", [], deadline.leftMs);
  const hasWheel = steps.some((step) => "wheel" in step);
  if (target !== null) {
    const options = { target, position: null, clicks: 0 };
    const aimed = await aim(page, options, { purpose: "over", attempt: 0 }, deadline);
    ({ frame, matches } = aimed);
    if (hasWheel && aimed.place) await page.pointer.move(aimed.place, [], deadline.leftMs);
    if (steps.some((step) => "chord" in step)) await frame.call("focusOn", [target], deadline.leftMs);
  } else if (hasWheel && page.pointer.at.x === 0 && page.pointer.at.y === 0) {
    const { width, height } = await page.mainFrame.call("size", [], deadline.leftMs);
    await page.pointer.move({ x: Math.round(width / 2), y: Math.round(height / 2) }, [], deadline.leftMs);
  }
  for (const step of steps)
    if (!(await isTaken(page, pressStep(page, step, deadline)))) return stillBusy(page, matches);
  return conclude(page, { before, frame, after: null, matches }, deadline);
}
