import { z } from "zod";
import { navigate, step } from "../page/navigate.ts";
import { type Context, defineOperation, type ToolOutput } from "./define.ts";
import { traceLog, withTrace } from "./outcome.ts";
import { Arrival, TimeoutMs, Trace } from "./schemas.ts";
import { inlineSnapshot } from "./snapshot.ts";

const navigationTimeoutMs = 30_000;

/** A new page is what the model wants to see next, so it is shown without being asked for. */
async function present(result: z.output<typeof Arrival>, context: Context): Promise<ToolOutput> {
  return {
    page: { ...result, isNews: true },
    result: result.still_loading ? "The page is there and still loading some of its parts." : undefined,
    snapshot: await inlineSnapshot(context),
    ...traceLog(result.trace),
  };
}

export const navigateOperation = defineOperation({
  name: "navigate",
  summary: "Navigate to a URL",
  method: "POST",
  path: "/navigate",
  timeoutMs: navigationTimeoutMs,
  params: z.object({
    url: z.string().min(1).max(100_000).describe("Without a scheme https is assumed, for localhost http"),
    wait_until: z.enum(["load", "domcontentloaded", "commit"]).default("load"),
    trace: Trace,
    timeout_ms: TimeoutMs,
  }),
  result: Arrival,
  run: async (context, { url, wait_until, trace }) =>
    withTrace(context, trace, async () =>
      navigate(await context.browser(), { url, until: wait_until }, context.deadline),
    ),
  tool: {
    name: "browser_navigate",
    description:
      "Open a URL; returns a snapshot of the page. session, in all tools: the name of a browser apart, with its own cookies and tabs",
    input: z.object({
      url: z.string(),
      trace: z.boolean().optional().describe("With a performance trace"),
    }),
    present,
  },
});

const stepParams = z.object({ timeout_ms: TimeoutMs });
const goStep = async ({ browser, deadline }: Context, by: -1 | 1) => step(await browser(), by, deadline);

export const backOperation = defineOperation({
  name: "back",
  summary: "Go back in history; a popup without history is closed",
  method: "POST",
  path: "/back",
  timeoutMs: navigationTimeoutMs,
  params: stepParams,
  result: Arrival,
  run: (context) => goStep(context, -1),
  tool: {
    name: "browser_navigate_back",
    description: "Go back to the previous page; in a popup without history, close it",
    input: z.object({}),
    present,
  },
});

export const forwardOperation = defineOperation({
  name: "forward",
  summary: "Go forward in history",
  method: "POST",
  path: "/forward",
  timeoutMs: navigationTimeoutMs,
  params: stepParams,
  result: Arrival,
  run: (context) => goStep(context, 1),
  tool: {
    name: "browser_navigate_forward",
    description: "Go forward to the next page",
    input: z.object({}),
    present,
  },
});
