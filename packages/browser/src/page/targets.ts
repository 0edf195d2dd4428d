/** Which frame a target belongs to, and where a point of a frame lies in the page. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { Page } from "./page.ts";

/** Attach to what pages are made of, and leave the browser's own windows alone. */
export const autoAttach = {
  autoAttach: true,
  waitForDebuggerOnStart: true,
  flatten: true,
  filter: ["page", "iframe", "worker", "shared_worker", "service_worker"].map((type) => ({ type })),
};

const refPattern = /^(f\d+)?e\d+$/;

export function isRef(target: string): boolean {
  return refPattern.test(target);
}

/** Words of the page are easily taken for a target, and make a selector that matches nothing. */
const wordsHint = (target: string) =>
  /^[A-Z][\w ]*$/.test(target) ? `It was taken for a CSS selector; for words write text=${target}. ` : "";

export function notFound(target: string): ToolError {
  return isRef(target)
    ? new ToolError(
        "stale_ref",
        `Ref ${target} not found in the current page snapshot. Try capturing new snapshot.`,
      )
    : new ToolError(
        "element_not_found",
        `"${target}" does not match any elements. ${wordsHint(target)}Take a snapshot to see what is there.`,
      );
}

/** A ref names its frame; anything else is looked for in the main frame first, then in the others. */
export function framesFor(page: Page, target: string): Frame[] {
  const ref = refPattern.exec(target);
  if (!ref) return [page.mainFrame, ...[...page.frames.values()].filter((frame) => frame !== page.mainFrame)];
  const prefix = ref[1] ?? "";
  const frame = [...page.frames.values()].find((each) => each.refPrefix === prefix);
  return frame ? [frame] : [];
}

export function parentOf(page: Page, frame: Frame): Frame | null {
  return frame.parentId === null ? null : (page.frames.get(frame.parentId) ?? null);
}

/** The frame's own element in its parent document, as an object of the parent's agent world. */
export async function ownerElement(parent: Frame, frame: Frame, deadline: Deadline): Promise<string> {
  const { backendNodeId } = await parent.session.send(
    "DOM.getFrameOwner",
    { frameId: frame.id },
    deadline.leftMs,
  );
  await parent.agent(deadline.leftMs);
  const executionContextId = parent.agentContextId ?? undefined;
  const { object } = await parent.session.send(
    "DOM.resolveNode",
    { backendNodeId, executionContextId },
    deadline.leftMs,
  );
  if (!object.objectId) throw new ToolError("element_not_actionable", "The frame is no longer in its page.");
  return object.objectId;
}

/** Turns a point of a frame into one of the page, and sees, for a click, that no frame is covered there. */
export async function placeInPage(
  page: Page,
  { frame, x, y, mustBeHit }: { frame: Frame; x: number; y: number; mustBeHit: boolean },
  deadline: Deadline,
): Promise<{ x: number; y: number }> {
  for (let at = frame; at !== page.mainFrame; ) {
    const parent = parentOf(page, at);
    if (!parent) throw new ToolError("element_not_actionable", "The frame is no longer in its page.");
    const objectId = await ownerElement(parent, at, deadline);
    const origin = await parent.call("framePlace", [{ objectId }], deadline.leftMs);
    x = origin.x + x * origin.scaleX;
    y = origin.y + y * origin.scaleY;
    const cover = !mustBeHit ? null : await parent.call("isFrameHit", [{ objectId }, x, y], deadline.leftMs);
    if (cover !== null)
      throw new ToolError(
        "element_covered",
        `The frame around the element is covered by ${cover}. Close it first.`,
      );
    at = parent;
  }
  return { x, y };
}
