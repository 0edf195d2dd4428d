/** Scrolling: an element into view, or by a number of pixels with the wheel, as a person does it. */
import { aim, pressKeys } from "./actions.ts";
import type { Deadline } from "./deadline.ts";
import type { Page } from "./page.ts";
import type { Point } from "./pointer.ts";
import { type ActionResult, conclude, stateBefore } from "./settle.ts";

export interface ScrollOptions {
  target: string | null;
  /** Null: the target is scrolled into view. */
  by: Point | null;
}

const signed = (pixels: number) => (pixels < 0 ? `${Math.round(pixels)}` : `+${Math.round(pixels)}`);

export async function scroll(
  page: Page,
  { target, by }: ScrollOptions,
  deadline: Deadline,
): Promise<ActionResult> {
  if (by) {
    const turns = [by.x === 0 ? "" : `WheelX${signed(by.x)}`, by.y === 0 ? "" : `Wheel${signed(by.y)}`];
    return pressKeys(page, { keys: turns.join(" ").trim() || "Wheel+0", target }, deadline);
  }
  const before = await stateBefore(page, deadline);
  const options = { target: target!, position: null, clicks: 0 };
  const { frame, matches } = await aim(page, options, { purpose: "over", attempt: 0 }, deadline);
  return conclude(page, { before, frame, after: null, matches }, deadline);
}
