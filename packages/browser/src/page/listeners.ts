/** Which elements scripts listen to: the browser tells, the page does not. */
import { CdpError } from "../cdp/connection.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";

const clickEvents =
  /^(click|dblclick|auxclick|contextmenu|mousedown|mouseup|pointerdown|pointerup|touchstart|touchend|dragstart)$/;

/** Asks about the elements that the agent left out of its snapshot. Returns how many of them react to clicks. */
export async function adoptListening(frame: Frame, deadline: Deadline): Promise<number> {
  if (frame.mainContextId === null) return 0;
  try {
    const listened = await listenedNodes(frame, frame.mainContextId, deadline);
    const silentId = await frame.callForObject("takeSilent", [], deadline.leftMs);
    if (listened.size === 0 || !silentId) return 0;
    const nodeIds = await nodeIdsOf(frame, silentId, deadline);
    const positions = nodeIds.flatMap((id, position) => (listened.has(id) ? [position] : []));
    if (positions.length > 0) await frame.call("adoptListening", [positions], deadline.leftMs);
    return positions.length;
  } catch (error) {
    // Another engine does not tell, and a document may go away in between; the snapshot is complete without it.
    if (error instanceof CdpError) return 0;
    throw error;
  }
}

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

async function nodeIdsOf(frame: Frame, listId: string, deadline: Deadline): Promise<number[]> {
  const { result } = await frame.session.send(
    "Runtime.getProperties",
    { objectId: listId, ownProperties: true },
    deadline.leftMs,
  );
  const objectIds = result.flatMap(({ name, value }) =>
    /^\d+$/.test(name) && value?.objectId ? [value.objectId] : [],
  );
  const nodes = await Promise.all(
    objectIds.map((objectId) => frame.session.send("DOM.describeNode", { objectId }, deadline.leftMs)),
  );
  return nodes.map(({ node }) => node.backendNodeId);
}
