/** Looks for the target of an action, and again at each change of the page, until it can be acted on. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import { type Frame, isContextGone } from "./frame.ts";
import type { Found } from "./inpage/contract.ts";
import type { Page } from "./page.ts";
import { askFrame, revealShadows } from "./search.ts";
import { framesFor, isRef, notFound } from "./targets.ts";

/** While an element is awaited, the page is looked at again at each change and at least this often. */
const lookAgainMs = 100;
/** Content that comes late may bring closed shadow roots; they are looked for at every so many looks. */
const looksPerReveal = 5;
/** How long an element is given to come to rest. */
const settleMsMax = 1_000;

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

export interface Look {
  attempt: number;
  checkMotion: boolean;
  leftMs: number;
}

export interface Ready {
  frame: Frame;
  found: Found;
}

/** Asks the frames, in turn and again at each change, until the element is there and ready. */
export async function whenReady(
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

export type WantedState = "visible" | "hidden" | "attached" | "detached";

/** Returns how many elements match once the target is in the wanted state. */
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
