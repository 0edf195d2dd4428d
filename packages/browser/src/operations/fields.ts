import { z } from "zod";
import { upload } from "../page/files.ts";
import { scroll } from "../page/scroll.ts";
import { type } from "../page/typing.ts";
import { defineOperation } from "./define.ts";
import { Files } from "./keyboard.ts";
import { actionTimeoutMs, Outcome, outcome, withDialog } from "./outcome.ts";
import { Dialog, Position, Target, TimeoutMs } from "./schemas.ts";

export const selectOperation = defineOperation({
  name: "select",
  summary: "Choose options of a list by label or value; several only where the list takes several",
  method: "POST",
  path: "/select",
  timeoutMs: actionTimeoutMs,
  params: z.object({
    target: Target,
    values: z.array(z.string().max(10_000)).min(1).max(1_000),
    dialog: Dialog,
    timeout_ms: TimeoutMs,
  }),
  result: Outcome,
  run: async (context, { target, values, dialog }) => {
    const options = { target, text: values.join("\n"), append: false, submit: false, slowly: false };
    return outcome(await withDialog(context, dialog, (page) => type(page, options, context.deadline)));
  },
});

export const uploadOperation = defineOperation({
  name: "upload",
  summary: "Give files to a file field, to an open file chooser, or drop them on an element",
  method: "POST",
  path: "/upload",
  timeoutMs: actionTimeoutMs,
  params: z.object({ target: Target.optional(), files: Files, timeout_ms: TimeoutMs }),
  result: Outcome,
  run: async (context, { target, files }) => {
    const page = await (await context.browser()).page();
    const uploads = context.session.options.uploadsDir;
    return outcome(await upload(page, { target: target ?? null, files, uploads }, context.deadline));
  },
});

export const scrollOperation = defineOperation({
  name: "scroll",
  summary: "Scroll an element into view, or the page or what lies under the target by x and y pixels",
  method: "POST",
  path: "/scroll",
  timeoutMs: actionTimeoutMs,
  params: z
    .object({
      target: Target.optional(),
      x: Position.shape.x.optional(),
      y: Position.shape.y.optional(),
      timeout_ms: TimeoutMs,
    })
    .refine(({ target, x, y }) => (target ?? x ?? y) !== undefined, {
      path: ["y"],
      message: "is required: pixels to scroll by, or else a target to scroll to",
    }),
  result: Outcome,
  run: async ({ browser, deadline }, { target, x, y }) => {
    const page = await (await browser()).page();
    const by = x === undefined && y === undefined ? null : { x: x ?? 0, y: y ?? 0 };
    return outcome(await scroll(page, { target: target ?? null, by }, deadline));
  },
});
