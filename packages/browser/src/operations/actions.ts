import { z } from "zod";
import { type ActionResult, click, press, type, waitFor } from "../page/actions.ts";
import type { Page } from "../page/page.ts";
import { type Context, defineOperation, refAsTarget, type ToolOutput } from "./define.ts";
import { Outcome, Target, TimeoutMs } from "./schemas.ts";
import { activePage } from "./snapshot.ts";

export const actionTimeoutMs = 5_000;
const textCharsMax = 1_000_000;

function outcome(result: ActionResult): z.input<typeof Outcome> {
  const { url, title, navigated, stillLoading, openedPage, matches } = result;
  return { url, title, navigated, still_loading: stillLoading, opened_page: openedPage, matches };
}

/** After a new document old refs are useless, so the new snapshot comes along; otherwise the model asks when it needs it. */
async function present(result: z.output<typeof Outcome>, context: Context): Promise<ToolOutput> {
  const notes: string[] = [];
  if (result.matches > 1)
    notes.push(`The target matched ${result.matches} elements; the first visible one was used.`);
  if (result.still_loading) notes.push("The page is still loading; take a snapshot later.");
  const note = notes.join("\n");
  if (!result.navigated && !result.opened_page) return { page: result, result: note };
  return { ...(await activePage(context)), result: note };
}

const Dialog = z
  .object({ accept: z.boolean(), prompt_text: z.string().max(10_000).optional() })
  .optional()
  .describe("Answer to a dialog that this action opens, instead of the standing policy");

/** The answer holds for this action only, whether or not a dialog came. */
async function withDialog<T>(
  { browser }: Context,
  dialog: z.output<typeof Dialog>,
  act: (page: Page) => Promise<T>,
): Promise<T> {
  const page = await (await browser()).page();
  page.nextDialog = dialog ? { accept: dialog.accept, promptText: dialog.prompt_text } : null;
  try {
    return await act(page);
  } finally {
    page.nextDialog = null;
  }
}

const toolTarget = z.string().describe("Ref from the snapshot, or selector");

export const clickOperation = defineOperation({
  name: "click",
  summary: "Click an element",
  method: "POST",
  path: "/click",
  timeoutMs: actionTimeoutMs,
  params: z.object({
    target: Target,
    double_click: z.boolean().default(false),
    button: z.enum(["left", "right", "middle"]).default("left"),
    modifiers: z.array(z.enum(["Alt", "Control", "ControlOrMeta", "Meta", "Shift"])).default([]),
    dialog: Dialog,
    timeout_ms: TimeoutMs,
  }),
  result: Outcome,
  run: async (context, { target, double_click, button, modifiers, dialog }) => {
    const primary = process.platform === "darwin" ? "Meta" : "Control";
    const keys = modifiers.map((name) => (name === "ControlOrMeta" ? primary : name));
    const options = { target, button, modifiers: keys, doubleClick: double_click };
    return outcome(await withDialog(context, dialog, (page) => click(page, options, context.deadline)));
  },
  tool: {
    name: "browser_click",
    description: "Click an element",
    input: z.object({
      target: toolTarget,
      element: z.string().optional().describe("What it is, in words"),
      doubleClick: z.boolean().optional(),
      button: z.enum(["left", "right", "middle"]).optional(),
      modifiers: z.array(z.enum(["Alt", "Control", "ControlOrMeta", "Meta", "Shift"])).optional(),
    }),
    toParams: ({ doubleClick, ...input }) => refAsTarget({ ...input, double_click: doubleClick }),
    present,
  },
});

export const typeOperation = defineOperation({
  name: "type",
  summary: "Type text into a field, replacing what is there; in a drop-down list, choose the option",
  method: "POST",
  path: "/type",
  timeoutMs: actionTimeoutMs,
  params: z.object({
    target: Target,
    text: z.string().max(textCharsMax),
    submit: z.boolean().default(false).describe("Press Enter afterwards"),
    slowly: z.boolean().default(false).describe("Key by key"),
    dialog: Dialog,
    timeout_ms: TimeoutMs,
  }),
  result: Outcome,
  run: async (context, { target, text, submit, slowly, dialog }) =>
    outcome(
      await withDialog(context, dialog, (page) =>
        type(page, { target, text, submit, slowly }, context.deadline),
      ),
    ),
  tool: {
    name: "browser_type",
    description: "Type into a field (replaces its text) or choose an option of a list",
    input: z.object({
      target: toolTarget,
      element: z.string().optional().describe("What it is, in words"),
      text: z.string(),
      submit: z.boolean().optional().describe("Press Enter after"),
      slowly: z.boolean().optional().describe("Key by key"),
    }),
    toParams: refAsTarget,
    present,
  },
});

export const pressKeyOperation = defineOperation({
  name: "press-key",
  summary: "Press a key or a combination such as Control+a",
  method: "POST",
  path: "/press-key",
  timeoutMs: actionTimeoutMs,
  params: z.object({ key: z.string().min(1).max(60), dialog: Dialog, timeout_ms: TimeoutMs }),
  result: Outcome,
  run: async (context, { key, dialog }) =>
    outcome(await withDialog(context, dialog, (page) => press(page, key, context.deadline))),
  tool: {
    name: "browser_press_key",
    description: "Press a key: Enter, ArrowDown, a, Control+a",
    input: z.object({ key: z.string() }),
    present,
  },
});

export const waitOperation = defineOperation({
  name: "wait-for-selector",
  summary: "Wait until an element is visible, hidden, attached or detached",
  method: "POST",
  path: "/wait-for-selector",
  timeoutMs: 30_000,
  params: z
    .object({
      selector: Target.optional(),
      target: Target.optional().describe("Same as selector"),
      state: z.enum(["visible", "hidden", "attached", "detached"]).default("visible"),
      timeout_ms: TimeoutMs,
    })
    .refine((value) => value.selector ?? value.target, {
      path: ["selector"],
      message: "is required: a CSS selector, ref, text=… or role=…",
    }),
  result: z.object({ matches: z.number().int() }),
  run: async ({ browser, deadline }, { selector, target, state }) => {
    const page = await (await browser()).page();
    return { matches: await waitFor(page, selector ?? target!, state, deadline) };
  },
});
