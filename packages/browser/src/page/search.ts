/** Looks for a target through the frames of a page; a frame that is gone or hangs is passed over. */
import { CdpError } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { Page } from "./page.ts";
import { adoptClosedRoots } from "./shadow.ts";
import { framesFor, isRef, notFound } from "./targets.ts";

/** A frame in a process of its own can hang without its page; this is how long each call to it is waited for. */
const frameAnswerMsMax = 3_000;

/** What the frame answers, or null when it is no longer there or says nothing. The main frame has to answer. */
export async function askFrame<T>(
  page: Page,
  frame: Frame,
  deadline: Deadline,
  ask: (limited: Deadline) => Promise<T>,
): Promise<T | null> {
  if (frame === page.mainFrame) return ask(deadline);
  const isSeparate = frame.session !== page.session;
  try {
    const answer = await ask(isSeparate ? deadline.withCallLimit(frameAnswerMsMax) : deadline);
    frame.isSilent = false;
    return answer;
  } catch (error) {
    if (page.session.ended) throw error;
    if (error instanceof CdpError || (error instanceof ToolError && error.code === "page_closed"))
      return null;
    if (!isSeparate || !(error instanceof ToolError) || error.code !== "timeout") throw error;
    page.frameSaidNothing(frame);
    return null;
  }
}

/** An element that is not found may be inside a closed shadow root that no snapshot has met yet. */
export async function revealShadows(page: Page, target: string, deadline: Deadline): Promise<boolean> {
  if (isRef(target)) return false;
  let revealed = 0;
  for (const frame of framesFor(page, target)) {
    const added = await askFrame(page, frame, deadline, async (limited) =>
      (await frame.call("scanHosts", [], limited.leftMs)) > 0 ? adoptClosedRoots(frame, false, limited) : 0,
    );
    revealed += added ?? 0;
  }
  return revealed > 0;
}

async function findFrame(page: Page, target: string, deadline: Deadline): Promise<Frame | null> {
  let hidden: Frame | null = null;
  for (const frame of framesFor(page, target)) {
    const answer = await askFrame(page, frame, deadline, (limited) =>
      frame.call("find", [target], limited.leftMs),
    );
    if (answer?.problem) throw new ToolError("invalid_request", answer.problem);
    if (answer?.isVisible) return frame;
    if (answer?.found) hidden ??= frame;
  }
  return hidden;
}

/** The frame that shows the target, or else the first one that has it. */
export async function frameHolding(page: Page, target: string, deadline: Deadline): Promise<Frame> {
  let frame = await findFrame(page, target, deadline);
  if (!frame && (await revealShadows(page, target, deadline)))
    frame = await findFrame(page, target, deadline);
  if (!frame) throw notFound(target);
  return frame;
}
