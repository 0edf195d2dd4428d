/** Runs every operation, from HTTP and MCP alike: validated, one after the other, within its timeout. */
import { ToolError, toToolError } from "../errors.ts";
import type { Browser } from "../page/browser.ts";
import { cancelled, Deadline } from "../page/deadline.ts";
import type { Notice } from "../page/notices.ts";
import type { Session } from "../session.ts";
import type { Context, Operation } from "./define.ts";

/** An operation that ignores its timeout is abandoned this long after it. */
const graceMs = 300;
const untimedMs = 30_000;
const unresponsive = "The page did not respond in time. Take a snapshot to see its state.";

export interface Executed<T> {
  value: T;
  /** Unsolicited events meanwhile: dialogs, popups, downloads, crashes. */
  events: Notice[];
}

export class OperationFailed extends Error {
  readonly reason: ToolError;
  readonly events: Notice[];

  constructor(reason: ToolError, events: Notice[]) {
    super(reason.message);
    this.reason = reason;
    this.events = events;
  }
}

/** `ref` and `selector` are other names of `target`: left unread, a text would go to whatever has the focus. */
function withTarget(operation: Operation, params: unknown): unknown {
  if (!("target" in operation.params.shape) || typeof params !== "object" || params === null) return params;
  const { target, ref, selector, ...rest } = params as Record<string, unknown>;
  return { ...rest, target: target ?? ref ?? selector };
}

/** The parameters as the operation wants them, or an error that names each field that is wrong. */
export function checkParams(operation: Operation, params: unknown): unknown {
  const parsed = operation.params.safeParse(withTarget(operation, params));
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path, message }) => {
    const missing = /^Invalid input: expected (.+), received undefined$/.exec(message)?.[1];
    return `${path.join(".") || "body"}: ${missing ? `is required (${missing})` : message}`;
  });
  throw new ToolError("invalid_request", problems.join("; "));
}

export interface ExecuteOptions<T> {
  session: Session;
  operation: Operation;
  params: unknown;
  /** What is made of the result, still within the operation's turn. */
  finish: (result: unknown, context: Context, checked: unknown) => Promise<T>;
  /** Aborted when the caller disconnects or cancels. */
  signal?: AbortSignal;
}

export async function execute<T>(options: ExecuteOptions<T>): Promise<Executed<T>> {
  const { session, operation, signal = null } = options;
  const checked = checkParams(operation, options.params) as { timeout_ms?: number };
  const work = () => attempt(options, checked);
  if (operation.timeoutMs === null) return work();
  return session.exclusive(() => (signal?.aborted ? Promise.reject(cancelled()) : work()));
}

/** Rejects when the signal is aborted; what still runs then ends at its next step, and nobody waits for it. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | null): Promise<T> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const abort = () => reject(cancelled());
    signal.addEventListener("abort", abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    if (signal.aborted) abort();
  });
}

async function attempt<T>(options: ExecuteOptions<T>, params: { timeout_ms?: number }): Promise<Executed<T>> {
  const { session, operation, finish, signal = null } = options;
  let running: Browser | null = null;
  let deadline = new Deadline(timeoutOf(operation, params) ?? untimedMs, signal);
  const browser = async () => {
    running = await session.browser();
    return running;
  };
  const run = async () => {
    // The start of the browser has its own limit and does not eat into the operation's, unless that was asked for.
    if (operation.timeoutMs !== null)
      await (params.timeout_ms === undefined ? browser() : startedWithin(browser(), deadline));
    deadline = new Deadline(deadline.timeoutMs, signal);
    const context = { session, deadline, browser, page: async () => (await browser()).page() };
    const result = await runWithinTime(operation, context, params);
    return finish(result, context, params);
  };
  try {
    const value = await unlessAborted(run(), signal);
    return { value, events: taken(running) };
  } catch (error) {
    const reason = reasonOf(error, deadline, running);
    // Nobody reads the answer to a cancelled call; what happened is kept for the next one.
    throw new OperationFailed(reason, reason.code === "cancelled" ? [] : taken(running));
  }
}

/** The browser goes on starting; the next operation finds it. */
function startedWithin(started: Promise<Browser>, deadline: Deadline): Promise<Browser> {
  const late = deadline.expired("The browser was still starting. Call again.");
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(late), deadline.restMs);
  return Promise.race([started, promise]).finally(() => clearTimeout(timer));
}

/** How long it may take; null for one that takes no time. */
export function timeoutOf(operation: Operation, params: { timeout_ms?: number }): number | null {
  return operation.timeoutFor?.(params as never) ?? params.timeout_ms ?? operation.timeoutMs;
}

/** Why an operation failed, in words for its caller. A page that made it time out is checked before the next operation. */
export function reasonOf(error: unknown, deadline: Deadline, running: Browser | null): ToolError {
  const reason = toToolError(error);
  if (reason.code !== "timeout" && reason.code !== "cancelled") return reason;
  running?.recoverActive();
  if (reason.code === "cancelled") return reason;
  return reason.message.startsWith("Timeout ") ? reason : deadline.expired(unresponsive);
}

const taken = (running: Browser | null): Notice[] => running?.notices.take() ?? [];

export function runWithinTime(operation: Operation, context: Context, params: unknown): Promise<unknown> {
  const { deadline } = context;
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(deadline.expired(unresponsive)), deadline.leftMs + graceMs);
  });
  const work = operation.run(context, params as never);
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
