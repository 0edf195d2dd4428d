/** Runs script of the caller in the page's own world. */
import { CdpError, type EventParams } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import { waitForLoad } from "./actions.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { Page } from "./page.ts";
import { frameHolding } from "./search.ts";
import { notFound } from "./targets.ts";

export interface EvaluateOptions {
  /** An expression, statements, or a function, which is called (with the target element, when there is one). */
  code: string;
  target: string | null;
  charsMax: number;
}

export interface EvaluateResult {
  /** The value as JSON, or undefined when it has none. */
  json: string | undefined;
  /** Length of the whole JSON where it was cut. */
  cutFrom: number | null;
}

export interface EvaluateOutcome extends EvaluateResult {
  /** The script led to a new document, which is there now. */
  navigated: boolean;
}

type Exception = EventParams<"Runtime.exceptionThrown">["exceptionDetails"];

function failure(details: Exception): ToolError {
  const text = details.exception?.description ?? String(details.exception?.value ?? details.text);
  const hint = isSyntaxError(details) ? ". Write it as a function: async () => { …; return value }" : "";
  return new ToolError("evaluation_failed", `The script failed: ${text.slice(0, 2_000)}${hint}`);
}

/** A script that sends its own page elsewhere gives no answer any more. */
function leftMeanwhile(error: unknown): unknown {
  if (!(error instanceof CdpError) || !/navigated or closed|context was destroyed/.test(error.message))
    return error;
  return new ToolError(
    "evaluation_failed",
    "The page went to another document before the script had finished. Take a snapshot to see where it is.",
  );
}

/** The value is turned into text in the page, so that a huge one never travels. */
function packing(charsMax: number): string {
  return `const t=v===undefined?undefined:JSON.stringify(v,null,2);return t===undefined?{}:t.length>${charsMax}?{json:t.slice(0,${charsMax}),cutFrom:t.length}:{json:t}`;
}

/** A function is often written as a statement; its value is wanted all the same. */
const asExpression = (code: string) => code.replace(/[\s;]+$/, "");

interface Packed {
  json?: string;
  cutFrom?: number;
}

function unpack(value: unknown): EvaluateResult {
  const { json, cutFrom } = (value ?? {}) as Packed;
  return { json, cutFrom: cutFrom ?? null };
}

const isSyntaxError = (details: Exception | undefined) =>
  details !== undefined && /^(Uncaught )?SyntaxError/.test(details.exception?.description ?? details.text);

export async function evaluate(
  page: Page,
  options: EvaluateOptions,
  deadline: Deadline,
): Promise<EvaluateOutcome> {
  const { navigationsBegun, documents } = page;
  const { target } = options;
  try {
    const work =
      target === null ? evaluateIn(page, options, deadline) : evaluateOn(page, target, options, deadline);
    const result = await work;
    if (page.navigationsBegun > navigationsBegun) await waitForLoad(page, deadline);
    return { ...result, navigated: page.documents !== documents };
  } catch (error) {
    throw leftMeanwhile(error);
  }
}

async function evaluateIn(page: Page, options: EvaluateOptions, deadline: Deadline): Promise<EvaluateResult> {
  const { code, charsMax } = options;
  const run = (expression: string) =>
    page.session.send(
      "Runtime.evaluate",
      { expression, awaitPromise: true, returnByValue: true, userGesture: true },
      deadline.leftMs,
    );
  const expression = `(async()=>{let v=(${asExpression(code)}\n);if(typeof v==="function")v=v();v=await v;${packing(charsMax)}})()`;
  const first = await run(expression);
  if (!first.exceptionDetails) return unpack(first.result.value);
  if (!isSyntaxError(first.exceptionDetails)) throw failure(first.exceptionDetails);
  // Not an expression: statements, whose last value counts, or the body of a function with a return.
  const body = /\breturn\b/.test(code) ? `(async()=>{${code}\n})()` : `eval(${JSON.stringify(code)})`;
  const second = await run(`(async()=>{const v=await ${body};${packing(charsMax)}})()`);
  if (second.exceptionDetails)
    throw failure(isSyntaxError(second.exceptionDetails) ? first.exceptionDetails : second.exceptionDetails);
  return unpack(second.result.value);
}

/** The element as the page's own script sees it. */
async function pageObject(
  page: Page,
  target: string,
  deadline: Deadline,
): Promise<{ frame: Frame; objectId: string }> {
  const frame = await frameHolding(page, target, deadline);
  const own = await frame.callForObject("element", [target], deadline.leftMs);
  if (!own) throw notFound(target);
  const { node } = await frame.session.send("DOM.describeNode", { objectId: own }, deadline.leftMs);
  const { object } = await frame.session.send(
    "DOM.resolveNode",
    { backendNodeId: node.backendNodeId, executionContextId: frame.mainContextId ?? undefined },
    deadline.leftMs,
  );
  if (!object.objectId) throw notFound(target);
  return { frame, objectId: object.objectId };
}

async function evaluateOn(page: Page, target: string, options: EvaluateOptions, deadline: Deadline) {
  const { frame, objectId } = await pageObject(page, target, deadline);
  const call = `async function(){let v=(${asExpression(options.code)}\n);if(typeof v==="function")v=v(this);v=await v;${packing(options.charsMax)}}`;
  const { result, exceptionDetails } = await frame.session.send(
    "Runtime.callFunctionOn",
    { functionDeclaration: call, objectId, awaitPromise: true, returnByValue: true, userGesture: true },
    deadline.leftMs,
  );
  frame.session.tell("Runtime.releaseObject", { objectId });
  if (exceptionDetails) throw failure(exceptionDetails);
  return unpack(result.value);
}
