import { z } from "zod";
import { Deadline } from "../page/deadline.ts";
import { type Context, defineOperation, type Operation } from "./define.ts";
import { checkParams, reasonOf, runWithinTime, timeoutOf } from "./execute.ts";
import { TimeoutMs } from "./schemas.ts";

const stepsMax = 100;
const batchTimeoutMs = 120_000;

/** Each operation is a step: its own parameters, and `op` to name it. */
export function makeBatchOperation(operations: Operation[]): Operation {
  const steps = new Map(operations.map((each) => [each.name, each]));
  const names = [...steps.keys()];

  async function runStep(context: Context, step: { op: string } & Record<string, unknown>) {
    const { op, ...params } = step;
    const operation = steps.get(op)!;
    let { deadline } = context;
    try {
      const checked = checkParams(operation, params) as { timeout_ms?: number };
      const ownMs = timeoutOf(operation, checked) ?? deadline.restMs;
      deadline = new Deadline(Math.ceil(Math.min(ownMs, deadline.restMs)), deadline.signal);
      return { op, ok: true, result: await runWithinTime(operation, { ...context, deadline }, checked) };
    } catch (error) {
      const { code, message } = reasonOf(error, deadline, await context.browser().catch(() => null));
      return { op, ok: false, error: { code, message } };
    }
  }

  return defineOperation({
    name: "batch",
    summary: "Run several operations in order, in one request",
    method: "POST",
    path: "/batch",
    timeoutMs: batchTimeoutMs,
    params: z.object({
      steps: z
        .array(z.looseObject({ op: z.enum(names) }))
        .min(1)
        .max(stepsMax)
        .describe("Each step is {op, …parameters of that operation}"),
      stop_on_error: z.boolean().default(true),
      timeout_ms: TimeoutMs,
    }),
    result: z.object({
      completed: z.number().int(),
      results: z.array(
        z.object({
          op: z.string(),
          ok: z.boolean(),
          result: z.unknown().optional(),
          error: z.object({ code: z.string(), message: z.string() }).optional(),
        }),
      ),
    }),
    run: async (context, { steps: wanted, stop_on_error }) => {
      const results: Awaited<ReturnType<typeof runStep>>[] = [];
      for (const step of wanted) {
        if (context.deadline.hasPassed) {
          const message = `The ${context.deadline.timeoutMs} ms of the batch were over before this step; give it more timeout_ms.`;
          results.push({ op: step.op, ok: false, error: { code: "timeout", message } });
          break;
        }
        const outcome = await runStep(context, step);
        results.push(outcome);
        if (!outcome.ok && stop_on_error) break;
      }
      return { completed: results.filter(({ ok }) => ok).length, results };
    },
  });
}
