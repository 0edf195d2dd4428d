/** Runs script of the caller in the page's own world. */
import { CdpError, type EventParams } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import { type Packed, packValue } from "./inpage/pack.ts";
import type { Page } from "./page.ts";
import { frameHolding } from "./search.ts";
import { waitForLoad } from "./settle.ts";
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

/** A page that is not stuck answers at once. */
const probeMs = 500;

export interface EvaluateOutcome extends EvaluateResult {
  /** The script led to a new document, which is there now. */
  navigated: boolean;
}

type Exception = EventParams<"Runtime.exceptionThrown">["exceptionDetails"];

function failure(details: Exception): ToolError {
  const text = details.exception?.description ?? String(details.exception?.value ?? details.text);
  const hint = isUnreadable(details) ? ". Write it as a function: async () => { …; return value }" : "";
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

/** Whether time ran out because of a promise, while the page itself is well. */
async function explainTimeout(page: Page, error: unknown, deadline: Deadline): Promise<unknown> {
  if (!(error instanceof ToolError) || error.code !== "timeout" || page.session.ended) return error;
  try {
    await page.session.send("Runtime.evaluate", { expression: "1" }, probeMs);
  } catch {
    return error;
  }
  return deadline.expired(
    "The script did not finish: it waits for a promise that has not settled. The page itself responds.",
  );
}

/** A function is often written as a statement; its value is wanted all the same. */
const asExpression = (code: string) => code.replace(/[\s;]+$/, "");

function unpack(value: unknown): EvaluateResult {
  const { json, cutFrom } = (value ?? {}) as Packed;
  return { json, cutFrom: cutFrom ?? null };
}

/** The code itself cannot be read; what it throws while it runs has a stack. */
const isUnreadable = (details: Exception) =>
  details.stackTrace === undefined &&
  !/in promise/.test(details.text) &&
  /^(Uncaught )?SyntaxError/.test(details.exception?.description ?? details.text);

/** The ways to read the code as a value. An arrow function around it adds no name to those that the code sees. */
function readings(code: string): string[] {
  const expression = `(async()=>(${asExpression(code)}\n))()`;
  return /\breturn\b/.test(code) ? [expression, `(async()=>{${code}\n})()`] : [expression];
}

export async function evaluate(
  page: Page,
  options: EvaluateOptions,
  deadline: Deadline,
): Promise<EvaluateOutcome> {
  const { navigationsBegun, documents } = page;
  const { target } = options;
  try {
    const result = await (target === null
      ? evaluateIn(page, options, deadline)
      : evaluateOn(page, target, options, deadline));
    if (page.navigationsBegun > navigationsBegun) await waitForLoad(page, deadline);
    return { ...result, navigated: page.documents !== documents };
  } catch (error) {
    throw leftMeanwhile(await explainTimeout(page, error, deadline));
  }
}

interface Answer {
  result: { value?: unknown };
  exceptionDetails?: Exception;
}

/** Tries each reading until one can be read; `complaint` is what is wrong with the first one. */
async function firstReadable(
  code: string,
  run: (expression: string) => Promise<Answer>,
): Promise<{ value: EvaluateResult } | { complaint: Exception }> {
  let complaint: Exception | undefined;
  for (const reading of readings(code)) {
    const { result, exceptionDetails } = await run(reading);
    if (!exceptionDetails) return { value: unpack(result.value) };
    if (!isUnreadable(exceptionDetails)) throw failure(exceptionDetails);
    complaint ??= exceptionDetails;
  }
  return { complaint: complaint! };
}

const packing = (charsMax: number, more = "") => `((v)=>(${packValue.toString()})(v,${charsMax}${more}))`;

/** The script is waited for, and may do what only a click may. */
const asValue = { awaitPromise: true, returnByValue: true, userGesture: true };

async function evaluateIn(page: Page, options: EvaluateOptions, deadline: Deadline): Promise<EvaluateResult> {
  const { code, charsMax } = options;
  const answer = await firstReadable(code, (reading) =>
    page.session.send(
      "Runtime.evaluate",
      {
        expression: `(async(p)=>${packing(charsMax)}(await p))(${reading})`,
        ...asValue,
      },
      deadline.leftMs,
    ),
  );
  return "value" in answer ? answer.value : runStatements(page, options, answer.complaint, deadline);
}

/** Statements, whose last value counts; in a block, so that their names do not stay in the page. */
async function runStatements(
  page: Page,
  { code, charsMax }: EvaluateOptions,
  complaint: Exception,
  deadline: Deadline,
): Promise<EvaluateResult> {
  const { result, exceptionDetails } = await page.session.send(
    "Runtime.evaluate",
    { expression: `{${code}\n}`, awaitPromise: true, userGesture: true },
    deadline.leftMs,
  );
  if (exceptionDetails) throw failure(isUnreadable(exceptionDetails) ? complaint : exceptionDetails);
  if (!result.objectId) {
    const value = result.unserializableValue ?? result.value;
    const json = value === undefined ? undefined : JSON.stringify(value);
    const cutFrom = json && json.length > charsMax ? json.length : null;
    return { json: json?.slice(0, charsMax), cutFrom };
  }
  const { objectId } = result;
  const packed = await page.session.send(
    "Runtime.callFunctionOn",
    {
      functionDeclaration: `function(){return ${packing(charsMax)}(this)}`,
      objectId,
      ...asValue,
    },
    deadline.leftMs,
  );
  page.session.tell("Runtime.releaseObject", { objectId });
  if (packed.exceptionDetails) throw failure(packed.exceptionDetails);
  return unpack(packed.result.value);
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
  const { code, charsMax } = options;
  try {
    const answer = await firstReadable(code, (reading) =>
      frame.session.send(
        "Runtime.callFunctionOn",
        {
          functionDeclaration: `function(){return (async(p)=>${packing(charsMax, ",this")}(await p))(${reading})}`,
          objectId,
          ...asValue,
        },
        deadline.leftMs,
      ),
    );
    if ("complaint" in answer) throw failure(answer.complaint);
    return answer.value;
  } finally {
    frame.session.tell("Runtime.releaseObject", { objectId });
  }
}
