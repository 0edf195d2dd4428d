/** Waiting for something to come, to go, or for a time. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Page } from "./page.ts";
import { waitFor } from "./ready.ts";
import { isRef } from "./targets.ts";

export interface WaitOptions {
  /** Text that has to be visible. */
  text?: string;
  /** A target that has to be visible. */
  selector?: string;
  /** A text or target that has to be gone. */
  gone?: string;
  /** Alone: how long to wait; with others: the most to wait for them. */
  ms?: number;
}

export const isWaiting = ({ text, selector, gone, ms }: WaitOptions) =>
  (text ?? selector ?? gone ?? ms) !== undefined;

/** Words are meant as words, unless they are written as a target. */
const asTarget = (words: string) =>
  isRef(words) || /^(text|role|css)=|^[#.[]/.test(words) ? words : `text=${words}`;

export async function waitUntil(
  page: Page,
  { text, selector, gone, ms }: WaitOptions,
  deadline: Deadline,
): Promise<void> {
  const limited = ms === undefined ? deadline : deadline.within(ms);
  if (text !== undefined) await waitFor(page, `text=${text}`, "visible", limited);
  if (selector !== undefined) await waitFor(page, selector, "visible", limited);
  if (gone !== undefined) await waitFor(page, asTarget(gone), "hidden", limited);
  if ((text ?? selector ?? gone) !== undefined || ms === undefined) return;
  if (ms > deadline.restMs)
    throw new ToolError(
      "invalid_request",
      `ms is ${ms}, but the operation has only ${Math.round(deadline.restMs)} ms; give it more timeout_ms.`,
    );
  await page.until(() => false, ms);
}
