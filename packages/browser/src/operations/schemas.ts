/** Schema parts that several operations share. */
import { z } from "zod";

const timeoutMsMax = 600_000;

export const Target = z
  .string()
  .min(1)
  .max(2_000)
  .describe('A ref of the last snapshot (e5, f1e2), a CSS selector, text=…, or role=button[name="…"]');

const timeoutHelp = "How long the operation may take";
export const TimeoutMs = z.number().int().min(1).max(timeoutMsMax).optional().describe(timeoutHelp);

const coordinate = z.number().min(-100_000).max(100_000);
export const Position = z.object({ x: coordinate, y: coordinate });

export const Modifiers = z.array(z.enum(["Alt", "Control", "ControlOrMeta", "Meta", "Shift"])).max(5);
export const Button = z.enum(["left", "right", "middle"]);

export const Dialog = z
  .object({ accept: z.boolean(), prompt_text: z.string().max(10_000).optional() })
  .optional()
  .describe("Answer to a dialog that this action opens, instead of the standing policy");

export const Event = z.object({
  kind: z.string(),
  text: z.string(),
  count: z.number().int().optional().describe("How often it happened, when more than once"),
});

export const Trace = z.boolean().default(false).describe("Record what the browser does meanwhile");
export const TraceResult = z
  .object({ file: z.string().describe("The whole trace"), summary: z.array(z.string()) })
  .optional();

export const Arrival = z.object({
  trace: TraceResult,
  url: z.string(),
  title: z.string(),
  status: z.number().int().nullable().describe("HTTP status of the document"),
  still_loading: z.boolean(),
});

/** Query strings carry everything as text. */
export const queryInt = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
export const QueryTimeoutMs = queryInt(1, timeoutMsMax).optional().describe(timeoutHelp);
export const queryFlag = z.union([
  z.boolean(),
  z.enum(["true", "false", "1", "0"]).transform((v) => v === "true" || v === "1"),
]);
