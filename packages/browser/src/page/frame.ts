/** One frame of a page, and the in-page agent of its current document. */
import { CdpError, type CdpSession, type Params } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import { type Agent, agentSource } from "./inpage/agent.ts";

export const worldName = "browser-tool";

type Answer<M extends keyof Agent> = Awaited<ReturnType<Agent[M]>>;

/** An argument that is an object of the page instead of a value. */
export interface ObjectArgument {
  objectId: string;
}

export interface FrameOptions {
  id: string;
  parentId: string | null;
  session: CdpSession;
  /** "" for the main frame, f1, f2 … for the others: what its refs begin with. */
  refPrefix: string;
  refs: RefCount;
}

/** Last number given out as a ref, shared by all documents that use the same prefix: an old ref never means a new element. */
export interface RefCount {
  last: number;
}

/** The browser's error messages for "the document is gone"; the caller retries in the next one. */
export function isContextGone(error: unknown): boolean {
  return (
    error instanceof CdpError &&
    /Cannot find context|context was destroyed|Could not find object|Cannot find default execution context|No frame (with|for) given id|Inspected target navigated|Frame with the given id was not found/i.test(
      error.message,
    )
  );
}

export class Frame {
  readonly id: string;
  readonly parentId: string | null;
  session: CdpSession;
  url = "";
  readonly refPrefix: string;
  readonly refs: RefCount;
  mainContextId: number | null = null;
  /** It did not answer when it was last asked. */
  isSilent = false;
  /** The world that the agent lives in, once there is an agent. */
  agentContextId: number | null = null;
  #agent: Promise<string> | null = null;

  constructor({ id, parentId, session, refPrefix, refs }: FrameOptions) {
    this.id = id;
    this.parentId = parentId;
    this.session = session;
    this.refPrefix = refPrefix;
    this.refs = refs;
  }

  documentChanged(): void {
    this.#agent = null;
  }

  /** The agent's object id, made on first use in a document. */
  agent(timeoutMs: number): Promise<string> {
    if (!this.#agent) {
      const made = this.#makeAgent(timeoutMs);
      this.#agent = made;
      made.catch(() => {
        if (this.#agent === made) this.#agent = null;
      });
    }
    return this.#agent;
  }

  async #makeAgent(timeoutMs: number, world = worldName): Promise<string> {
    const { executionContextId } = await this.session.send(
      "Page.createIsolatedWorld",
      { frameId: this.id, worldName: world },
      timeoutMs,
    );
    this.agentContextId = executionContextId;
    const { result, exceptionDetails } = await this.session.send(
      "Runtime.evaluate",
      { expression: agentSource(this.refPrefix), contextId: executionContextId },
      timeoutMs,
    );
    if (result.subtype === "null" && world === worldName) return this.#makeAgent(timeoutMs, `${world}-2`);
    if (!result.objectId)
      throw new ToolError("internal_error", `The page agent failed: ${exceptionDetails?.text}`);
    return result.objectId;
  }

  /** Calls the agent; in a document that went away meanwhile, once more in the next one. */
  async call<M extends keyof Agent>(
    method: M,
    args: (Parameters<Agent[M]>[number] | ObjectArgument)[],
    timeoutMs: number,
  ): Promise<Answer<M>> {
    const { value } = await this.#invoke(method, args, { returnByValue: true }, timeoutMs);
    const { lastRef } = (value ?? {}) as { lastRef?: number };
    if (typeof lastRef === "number") this.refs.last = Math.max(this.refs.last, lastRef);
    return value as Answer<M>;
  }

  /** Like `call`, for methods that answer with an object of the page. */
  async callForObject(
    method: keyof Agent,
    args: (string | ObjectArgument)[],
    timeoutMs: number,
  ): Promise<string | null> {
    return (await this.#invoke(method, args, { returnByValue: false }, timeoutMs)).objectId ?? null;
  }

  async #invoke(
    method: keyof Agent,
    args: unknown[],
    how: Pick<Params<"Runtime.callFunctionOn">, "returnByValue">,
    timeoutMs: number,
  ) {
    const deadline = performance.now() + timeoutMs;
    for (let attempt = 0; ; attempt++) {
      const leftMs = Math.max(1, deadline - performance.now());
      try {
        const objectId = await this.agent(leftMs);
        const { result, exceptionDetails } = await this.session.send(
          "Runtime.callFunctionOn",
          {
            functionDeclaration: `function(n,...a){this.countFrom(n);return this.${method}(...a)}`,
            objectId,
            arguments: [this.refs.last, ...args].map((arg) =>
              typeof arg === "object" && arg !== null && "objectId" in arg
                ? { objectId: (arg as ObjectArgument).objectId }
                : { value: arg },
            ),
            awaitPromise: true,
            ...how,
          },
          leftMs,
        );
        if (exceptionDetails) {
          const text = exceptionDetails.exception?.description ?? exceptionDetails.text;
          throw new ToolError("internal_error", `Looking at the page failed: ${text}`);
        }
        return result;
      } catch (error) {
        if (!isContextGone(error) || attempt >= 2) throw error;
        this.documentChanged();
      }
    }
  }
}

/** Nodes as objects of the agent's world. */
export async function resolveAll(
  frame: Frame,
  nodeIds: Iterable<number>,
  { leftMs }: Deadline,
): Promise<ObjectArgument[]> {
  const executionContextId = frame.agentContextId ?? undefined;
  const nodes = await Promise.all(
    Array.from(nodeIds, (backendNodeId) =>
      frame.session.send("DOM.resolveNode", { backendNodeId, executionContextId }, leftMs),
    ),
  );
  return nodes.flatMap(({ object }) => (object.objectId ? [{ objectId: object.objectId }] : []));
}

/** The members of a list in the page, as ids of objects. */
export async function membersOf(frame: Frame, listId: string, { leftMs }: Deadline): Promise<string[]> {
  const list = { objectId: listId, ownProperties: true };
  const { result } = await frame.session.send("Runtime.getProperties", list, leftMs);
  return result.flatMap(({ name, value }) => (/^\d+$/.test(name) && value?.objectId ? [value.objectId] : []));
}
