import { z } from "zod";
import { ToolError } from "../errors.ts";
import { pressKeys } from "../page/actions.ts";
import { upload } from "../page/files.ts";
import type { Page } from "../page/page.ts";
import { inLines } from "../page/settle.ts";
import { type } from "../page/typing.ts";
import { defineOperation } from "./define.ts";
import { acted, actionTimeoutMs, dialogParams, Outcome, present, toolDialog, toolTarget } from "./outcome.ts";
import { Dialog, Target, TimeoutMs, Trace } from "./schemas.ts";

const textCharsMax = 1_000_000;
const filesMax = 50;
const fieldsMax = 100;
const keysCharsMax = 1_000;

export const typeOperation = defineOperation({
  name: "type",
  summary:
    "Type text into a field, replacing what is there; choose an option of a list; give files to a file field",
  method: "POST",
  path: "/type",
  timeoutMs: actionTimeoutMs,
  params: z
    .object({
      target: Target.optional().describe("Without one: at the caret of what has the focus"),
      text: z.string().max(textCharsMax).optional(),
      fields: z
        .array(z.object({ target: Target, text: z.string().max(textCharsMax) }))
        .min(1)
        .max(fieldsMax)
        .optional()
        .describe("Several fields, one after the other, in place of target and text"),
      append: z.boolean().default(false).describe("Keep what is there and go on at its end"),
      files: z
        .array(z.string().min(1).max(4_096))
        .min(1)
        .max(filesMax)
        .optional()
        .describe("Paths in the --uploads folder, for a file field or a file chooser that is open"),
      submit: z.boolean().default(false).describe("Press Enter afterwards"),
      slowly: z.boolean().default(false).describe("Key by key"),
      trace: Trace,
      dialog: Dialog,
      timeout_ms: TimeoutMs,
    })
    .refine(
      ({ text, files, fields }) => [text, files, fields].filter((each) => each !== undefined).length === 1,
      {
        path: ["text"],
        message:
          "is required (string), or files (array of paths), or fields (array of {target, text}); one of them",
      },
    ),
  result: Outcome,
  run: async (context, params) => {
    const { target: given, text = "", files, fields, append, submit, slowly } = params;
    const target = given ?? null;
    const uploads = context.session.options.uploadsDir;
    const { deadline } = context;
    const work = async (page: Page) => {
      if (files) return upload(page, { target, files, uploads }, deadline);
      let told = "";
      for (const field of (fields ?? []).slice(0, -1)) {
        const { changes, navigated } = await type(
          page,
          { ...field, append, submit: false, slowly },
          deadline,
        );
        if (navigated)
          throw new ToolError(
            "page_closed",
            `Typing into "${field.target}" led to another page; the other fields are left. Take a snapshot.`,
          );
        told = inLines(told, changes);
      }
      const last = await type(
        page,
        { ...(fields?.at(-1) ?? { target, text }), append, submit, slowly },
        deadline,
      );
      return { ...last, changes: inLines(told, last.changes) };
    };
    return acted(context, params, work);
  },
  tool: {
    name: "browser_type",
    description:
      "Type into a field (replaces its text) or the focus, choose an option of a list, or give files",
    input: z.object({
      target: toolTarget.optional(),
      text: z.string().optional(),
      fields: z
        .array(z.object({ target: z.string(), text: z.string() }))
        .optional()
        .describe("Several at once"),
      append: z.boolean().optional().describe("Keep what is there"),
      files: z.array(z.string()).optional().describe("Paths in the uploads folder"),
      submit: z.boolean().optional().describe("Press Enter after"),
      slowly: z.boolean().optional().describe("Key by key"),
      dialog: toolDialog,
    }),
    toParams: ({ dialog, ...input }) => ({ ...input, dialog: dialogParams(dialog) }),
    present,
  },
});

export const pressKeyOperation = defineOperation({
  name: "press-key",
  summary:
    "Press keys: one, a combination such as Control+a, or several after another; Wheel+400 turns the wheel",
  method: "POST",
  path: "/press-key",
  timeoutMs: actionTimeoutMs,
  params: z.object({
    key: z
      .string()
      .min(1)
      .max(keysCharsMax)
      .describe("Enter, Control+a, ArrowDown*3 Enter, あ, Wheel+400, WheelX-100"),
    target: Target.optional().describe("Focused first; for the wheel, pointed at"),
    trace: Trace,
    dialog: Dialog,
    timeout_ms: TimeoutMs,
  }),
  result: Outcome,
  run: (context, params) => {
    const { key: keys, target = null } = params;
    return acted(context, params, (page) => pressKeys(page, { keys, target }, context.deadline));
  },
  tool: {
    name: "browser_press_key",
    description: "Press keys, or scroll: Enter, Control+a Delete, ArrowDown*3, あ, Wheel+400 (down)",
    input: z.object({ key: z.string(), target: toolTarget.optional() }),
    present,
  },
});
