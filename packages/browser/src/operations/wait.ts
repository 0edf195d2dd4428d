import { z } from "zod";
import { waitFor } from "../page/ready.ts";
import { isWaiting, waitUntil } from "../page/wait.ts";
import { defineOperation } from "./define.ts";
import { Target, TimeoutMs } from "./schemas.ts";

const waitTimeoutMs = 30_000;
const waitMsMax = 600_000;

export const waitForSelectorOperation = defineOperation({
  name: "wait-for-selector",
  summary: "Wait until an element is visible, hidden, attached or detached",
  method: "POST",
  path: "/wait-for-selector",
  timeoutMs: waitTimeoutMs,
  params: z.object({
    target: Target,
    state: z.enum(["visible", "hidden", "attached", "detached"]).default("visible"),
    timeout_ms: TimeoutMs,
  }),
  result: z.object({ matches: z.number().int() }),
  run: async ({ page, deadline }, { target, state }) => ({
    matches: await waitFor(await page(), target, state, deadline),
  }),
});

export const waitOperation = defineOperation({
  name: "wait",
  summary: "Wait for a text or an element to come or to go, or for a time",
  method: "POST",
  path: "/wait",
  timeoutMs: waitTimeoutMs,
  timeoutFor: ({ timeout_ms, ms }) => timeout_ms ?? waitTimeoutMs + (ms ?? 0),
  params: z
    .object({
      text: z.string().min(1).max(1_000).optional().describe("Text that has to be visible"),
      selector: Target.optional().describe("Target that has to be visible"),
      gone: z.string().min(1).max(1_000).optional().describe("Text or target that has to be gone"),
      ms: z
        .number()
        .int()
        .min(0)
        .max(waitMsMax)
        .optional()
        .describe("Alone: how long to wait; else the most to wait"),
      timeout_ms: TimeoutMs,
    })
    .refine(isWaiting, { path: ["text"], message: "is required, or selector, gone or ms" }),
  result: z.object({ url: z.string(), title: z.string() }),
  run: async ({ page, deadline }, wanted) => {
    await waitUntil(await page(), wanted, deadline);
    return (await page()).mainFrame.call("state", [], deadline.leftMs);
  },
});
