/** Which elements scripts listen to: the browser tells, the page does not. */
import { CdpError } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import { type Frame, membersOf, type ObjectArgument, resolveAll } from "./frame.ts";

const clickEvents =
  /^(click|dblclick|auxclick|contextmenu|mousedown|mouseup|pointerdown|pointerup|touchstart|touchend|dragstart)$/;

/**
 * Asks about the elements that the agent left out of its snapshot, of which there are `silent`. Returns how many of
 * them react to clicks.
 */
export async function adoptListening(frame: Frame, silent: number, deadline: Deadline): Promise<number> {
  if (frame.mainContextId === null) return 0;
  try {
    const listened = await listenedNodes(frame, frame.mainContextId, deadline);
    const elements =
      listened.size <= silent
        ? await resolveAll(frame, listened, deadline)
        : await silentAmong(frame, listened, deadline);
    return await frame.call("adoptListening", elements, deadline.leftMs);
  } catch (error) {
    // Another engine may not tell, and a document may go away in between; the snapshot does without it then.
    const isUnknown = error instanceof ToolError && error.code === "not_supported";
    if (isUnknown || error instanceof CdpError) return 0;
    throw error;
  }
}

/** Backend ids of the nodes that have a listener for clicks or the like. */
async function listenedNodes(frame: Frame, contextId: number, deadline: Deadline): Promise<Set<number>> {
  const { result } = await frame.session.send(
    "Runtime.evaluate",
    { expression: "document", contextId },
    deadline.leftMs,
  );
  if (!result.objectId) return new Set();
  const { listeners } = await frame.session.send(
    "DOMDebugger.getEventListeners",
    { objectId: result.objectId, depth: -1, pierce: true },
    deadline.leftMs,
  );
  return new Set(
    listeners.flatMap(({ type, backendNodeId }) =>
      clickEvents.test(type) && backendNodeId !== undefined ? [backendNodeId] : [],
    ),
  );
}

async function silentAmong(
  frame: Frame,
  listened: Set<number>,
  deadline: Deadline,
): Promise<ObjectArgument[]> {
  const listId = await frame.callForObject("silentElements", [], deadline.leftMs);
  if (!listId) return [];
  const objectIds = await membersOf(frame, listId, deadline);
  const nodes = await Promise.all(
    objectIds.map((objectId) => frame.session.send("DOM.describeNode", { objectId }, deadline.leftMs)),
  );
  return objectIds
    .filter((_, position) => listened.has(nodes[position]!.node.backendNodeId))
    .map((objectId) => ({ objectId }));
}
