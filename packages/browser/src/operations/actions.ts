import { z } from "zod";
import { type ActionResult, click, press, type, waitFor } from "../page/actions.ts";
import { type Context, defineOperation, type ToolOutput } from "./define.ts";
import { Outcome, Target, TimeoutMs } from "./schemas.ts";
import { inlineSnapshot } from "./snapshot.ts";

export const actionTimeoutMs = 5_000;
const textCharsMax = 1_000_000;

function outcome(result: ActionResult): z.input<typeof Outcome> {
  const { url, title, navigated, stillLoading, matches } = result;
  return { url, title, navigated, still_loading: stillLoading, matches };
}

/** Older clients say `ref`, newer ones `target`. */
export function refAsTarget(input: Record<string, unknown>): Record<string, unknown> {
  const { ref, target, ...rest } = input;
  const value = target ?? ref;
  return value === undefined ? rest : { ...rest, target: value };
}

/** After a new document old refs are useless, so the new snapshot comes along; otherwise the model asks when it needs it. */
async function present(result: z.output<typeof Outcome>, context: Context): Promise<ToolOutput> {
  if (!result.navigated) return { page: result };
  const page = await (await context.browser()).page();
  const { url, title } = await page.mainFrame.call("state", [], context.deadline.leftMs);
  return { page: { url, title }, snapshot: await inlineSnapshot(context) };
}

const Dialog = z
  .object({ accept: z.boolean(), prompt_text: z.string().max(10_000).optional() })
  .optional()
  .describe("Answer to a dialog that this action opens, instead of the standing policy");

async function pageWithDialog({ browser }: Context, dialog: z.output<typeof Dialog>) {
  const page = await (await browser()).page();
  page.nextDialog = dialog ? { accept: dialog.accept, promptText: dialog.prompt_text } : null;
  return page;
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
    const page = await pageWithDialog(context, dialog);
    const primary = process.platform === "darwin" ? "Meta" : "Control";
    const keys = modifiers.map((name) => (name === "ControlOrMeta" ? primary : name));
    const options = { target, button, modifiers: keys, doubleClick: double_click };
    return outcome(await click(page, options, context.deadline));
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
      await type(await pageWithDialog(context, dialog), { target, text, submit, slowly }, context.deadline),
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
    outcome(await press(await pageWithDialog(context, dialog), key, context.deadline)),
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
