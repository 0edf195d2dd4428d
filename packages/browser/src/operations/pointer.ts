import { z } from "zod";
import { hover } from "../page/actions.ts";
import { drag } from "../page/drag.ts";
import { DragTo, destination, isSomewhere, pointerOptions, somewhere, where } from "./click.ts";
import { defineOperation } from "./define.ts";
import { actionTimeoutMs, Outcome, outcome, withDialog } from "./outcome.ts";
import { Dialog, TimeoutMs } from "./schemas.ts";

export const hoverOperation = defineOperation({
  name: "hover",
  summary: "Put the pointer over an element or a place",
  method: "POST",
  path: "/hover",
  timeoutMs: actionTimeoutMs,
  params: z.object({ ...where, timeout_ms: TimeoutMs }).refine(isSomewhere, somewhere),
  result: Outcome,
  run: async (context, params) => {
    const page = await (await context.browser()).page();
    return outcome(await hover(page, pointerOptions(params), context.deadline));
  },
});

export const dragOperation = defineOperation({
  name: "drag",
  summary: "Drag an element or from a place to another; pointer, HTML and touch drags",
  method: "POST",
  path: "/drag",
  timeoutMs: actionTimeoutMs,
  params: z
    .object({ ...where, to: DragTo, dialog: Dialog, timeout_ms: TimeoutMs })
    .refine(isSomewhere, somewhere),
  result: Outcome,
  run: async (context, params) =>
    outcome(
      await withDialog(context, params.dialog, (page) =>
        drag(page, pointerOptions(params), destination(params.to), context.deadline),
      ),
    ),
});
