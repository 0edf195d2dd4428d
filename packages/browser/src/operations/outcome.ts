/** The result of every action, and how it is presented to a model. */
import { writeFileSync } from "node:fs";
import { z } from "zod";
import type { Page } from "../page/page.ts";
import { ActionResult } from "../page/settle.ts";
import type { Context, ToolOutput } from "./define.ts";
import { type Dialog, TraceResult } from "./schemas.ts";
import { activePage, comparedWith } from "./snapshot.ts";

export const actionTimeoutMs = 5_000;

export const Outcome = ActionResult.extend({ trace: TraceResult });

export const traceLog = (trace: z.output<typeof TraceResult>) =>
  trace
    ? {
        logs: [{ title: "Trace", lines: [...trace.summary, `The whole trace: ${trace.file}`] }],
        logCharsMax: 3_000,
      }
    : {};

/** The work, and where it is asked for a trace of it; its file is written without secrets. */
export async function withTrace<T extends object>(
  { browser, deadline }: Context,
  trace: boolean,
  work: () => Promise<T>,
): Promise<T & { trace?: z.input<typeof TraceResult> }> {
  if (!trace) return work();
  const running = await browser();
  const { traced } = await import("../page/trace.ts");
  const { result, json, summary } = await traced(await running.page(), work, deadline);
  const file = running.fileFor("trace.json");
  writeFileSync(file, running.options.secrets.redact(json), { mode: 0o600 });
  return { ...result, trace: { file, summary } };
}

/** After a new document old refs are useless, so the new snapshot comes along; otherwise only what changed. */
export async function present(result: z.output<typeof Outcome>, context: Context): Promise<ToolOutput> {
  const notes: string[] = [];
  if (result.matches > 1)
    notes.push(`The target matched ${result.matches} elements; the first visible one was used.`);
  if (result.still_loading) notes.push("The page is still loading; take a snapshot later.");
  if (result.navigated || result.opened_page)
    return { ...(await activePage(context)), result: notes.join("\n"), ...traceLog(result.trace) };
  if (result.changes === "" && !result.still_loading)
    notes.push(`Done; nothing changed ${comparedWith(result.changes_partial)}.`);
  const isCut = result.changes_cut && !result.changes.includes("see browser_snapshot");
  const more = isCut ? "\n… more changed; take a snapshot" : "";
  return {
    page: { ...result, isNews: false },
    result: notes.join("\n"),
    changes: result.changes === "" ? undefined : result.changes + more,
    ...traceLog(result.trace),
  };
}

/** An action, with the answer to dialogs that it opens, and with a trace of it where that was asked for. */
export function acted(
  context: Context,
  { dialog, trace }: { dialog?: z.output<typeof Dialog>; trace: boolean },
  act: (page: Page) => Promise<ActionResult>,
) {
  return withTrace(context, trace, async () => {
    const page = await context.page();
    page.dialogAnswer = dialog ? { accept: dialog.accept, promptText: dialog.prompt_text } : null;
    try {
      return await act(page);
    } finally {
      page.dialogAnswer = null;
    }
  });
}

/** A dialog's answer as a model writes it. */
export const toolDialog = z
  .object({ accept: z.boolean(), promptText: z.string().optional() })
  .optional()
  .describe("Answer to a dialog it opens");

export function dialogParams(dialog: unknown): unknown {
  if (typeof dialog !== "object" || dialog === null) return dialog;
  const { promptText, ...rest } = dialog as { promptText?: unknown };
  return promptText === undefined ? rest : { ...rest, prompt_text: promptText };
}

export const toolTarget = z.string().describe("Ref or selector");
