/** Closed shadow roots are invisible to script; the browser names them, and the in-page agent is given each one. */
import type { Protocol } from "devtools-protocol";
import type { Deadline } from "./deadline.ts";
import { type Frame, membersOf, resolveAll } from "./frame.ts";

/** Returns how many roots the agent did not know before. */
export async function adoptClosedRoots(
  frame: Frame,
  wholeDocument: boolean,
  deadline: Deadline,
): Promise<number> {
  const hosts = await frame.callForObject("takeHosts", [], deadline.leftMs);
  if (!hosts) return 0;
  const nodes = wholeDocument
    ? [await describeDocument(frame, deadline)]
    : await describeEach(frame, hosts, deadline);
  const closed = nodes.flatMap(closedRootsIn);
  if (closed.length === 0) return 0;
  return frame.call("adoptClosedRoots", await resolveAll(frame, closed, deadline), deadline.leftMs);
}

function closedRootsIn(node: Protocol.DOM.Node): number[] {
  const found: number[] = [];
  for (const root of node.shadowRoots ?? []) {
    if (root.shadowRootType === "closed") found.push(root.backendNodeId);
    found.push(...closedRootsIn(root));
  }
  for (const child of node.children ?? []) found.push(...closedRootsIn(child));
  return found;
}

async function describeDocument(frame: Frame, deadline: Deadline): Promise<Protocol.DOM.Node> {
  const { result } = await frame.session.send(
    "Runtime.evaluate",
    {
      // A picture may be called "documentElement", and would be what the document answers with.
      expression: "Reflect.get(Document.prototype, 'documentElement', document)",
      contextId: frame.agentContextId ?? undefined,
    },
    deadline.leftMs,
  );
  const { node } = await frame.session.send(
    "DOM.describeNode",
    { objectId: result.objectId, depth: -1, pierce: true },
    deadline.leftMs,
  );
  return node;
}

async function describeEach(frame: Frame, listId: string, deadline: Deadline): Promise<Protocol.DOM.Node[]> {
  const answers = await Promise.all(
    (await membersOf(frame, listId, deadline)).map((objectId) =>
      frame.session.send("DOM.describeNode", { objectId, depth: -1, pierce: true }, deadline.leftMs),
    ),
  );
  return answers.map(({ node }) => node);
}
