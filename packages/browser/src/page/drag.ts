/** Drags: press, move along the path that a hand would take, and release. The browser's own drag-and-drop included. */

import { type PointerOptions, pressAt } from "./actions.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { Page } from "./page.ts";
import type { Point } from "./pointer.ts";
import { frameHolding } from "./search.ts";
import { type ActionResult, conclude, isTaken, stateBefore, stillBusy } from "./settle.ts";
import { notFound, placeInPage } from "./targets.ts";

export interface Destination {
  target: string | null;
  /** In the target from its upper left corner; without a target, in the page. */
  position: Point | null;
}

/** Pages take a movement for a drag only beyond a few pixels. */
const firstMovesPx = [2, 5, 9];
const stepsMin = 5;
const stepsMax = 20;
const pixelsPerStep = 40;
const dwellsMax = 5;
const dwellMsMax = 400;

async function destinationPlace(page: Page, to: Destination, deadline: Deadline): Promise<Point> {
  const { target, position } = to;
  if (target === null) return position!;
  const frame = await frameHolding(page, target, deadline);
  const found = await frame.call("placeOf", [target, position], deadline.leftMs);
  if (!found) throw notFound(target);
  return placeInPage(page, { frame, ...found, mustBeHit: false }, deadline);
}

/** What is dragged may change the page under it, so each step is seen and drawn before the next one. */
async function moveTo(page: Page, frame: Frame, to: Point, options: PointerOptions, deadline: Deadline) {
  await page.pointer.move(to, options.modifiers, deadline.leftMs);
  await frame.call("frame", [], deadline.leftMs);
}

/** Lists make room with an animation, and take no notice of the pointer until that is over. */
async function dwell(page: Page, frame: Frame, goal: Point, options: PointerOptions, deadline: Deadline) {
  for (let i = 0; i < dwellsMax && !deadline.hasPassed; i++) {
    await page.pointer.move(
      { x: goal.x, y: goal.y + (i % 2 === 0 ? 1 : 0) },
      options.modifiers,
      deadline.leftMs,
    );
    await page.pointer.move(goal, options.modifiers, deadline.leftMs);
    if (await frame.call("quiet", [Math.min(dwellMsMax, deadline.restMs)], deadline.leftMs)) return;
  }
}

export async function drag(
  page: Page,
  options: PointerOptions,
  to: Destination,
  deadline: Deadline,
): Promise<ActionResult> {
  const before = await stateBefore(page, deadline);
  // Scrolled to before the press, so that as little as possible moves while something is held.
  await destinationPlace(page, to, deadline);
  const { frame, matches, place: from } = await pressAt(page, options, deadline);
  try {
    const goal = await destinationPlace(page, to, deadline);
    const length = Math.hypot(goal.x - from.x, goal.y - from.y) || 1;
    const towards = (pixels: number): Point => ({
      x: from.x + ((goal.x - from.x) * pixels) / length,
      y: from.y + ((goal.y - from.y) * pixels) / length,
    });
    for (const pixels of firstMovesPx)
      await moveTo(page, frame, towards(Math.min(pixels, length)), options, deadline);
    if (await frame.call("hasDragBegun", [], deadline.leftMs)) await page.pointer.dragBegan();
    const steps = Math.max(stepsMin, Math.min(stepsMax, Math.ceil(length / pixelsPerStep)));
    for (let step = 1; step <= steps; step++)
      await moveTo(page, frame, towards((length * step) / steps), options, deadline);
    await dwell(page, frame, goal, options, deadline);
  } finally {
    if (!(await isTaken(page, page.pointer.release(options, deadline.leftMs)))) stillBusy(page, matches);
  }
  return conclude(page, { before, frame, after: null, matches }, deadline);
}
