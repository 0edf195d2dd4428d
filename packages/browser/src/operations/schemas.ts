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

export const Event = z.object({ kind: z.string(), text: z.string() });

export const Outcome = z.object({
  url: z.string(),
  title: z.string(),
  navigated: z.boolean().describe("The page is a new document; refs of earlier snapshots are gone"),
  still_loading: z.boolean(),
  opened_page: z
    .boolean()
    .describe("A page was opened and is the active one now; url and title are of the old one"),
  matches: z.number().int().describe("How many elements matched the target; the first visible one was used"),
});

export const Arrival = z.object({
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
