import { z } from "zod";
import { click, hover, type PointerOptions, press, release } from "../page/actions.ts";
import { type Destination, drag } from "../page/drag.ts";
import { primaryModifier } from "../page/keys.ts";
import type { Page } from "../page/page.ts";
import type { ActionResult } from "../page/settle.ts";
import { type Context, defineOperation } from "./define.ts";
import { acted, actionTimeoutMs, dialogParams, Outcome, present, toolDialog, toolTarget } from "./outcome.ts";
import { Button, Dialog, Modifiers, Position, Target, TimeoutMs, Trace } from "./schemas.ts";

const clicksMax = 3;

/** A target, a place in it, or a place of the page. */
const DragTo = z
  .object({ target: Target.optional(), x: Position.shape.x.optional(), y: Position.shape.y.optional() })
  .refine(({ target, x, y }) => (x === undefined) === (y === undefined) && (target ?? x) !== undefined, {
    message: "needs a target, or x and y of the page, or both: a place in the target",
  });

function destination({ target, x, y }: z.output<typeof DragTo>): Destination {
  return { target: target ?? null, position: x === undefined || y === undefined ? null : { x, y } };
}

type Work = (page: Page, options: PointerOptions, deadline: Context["deadline"]) => Promise<ActionResult>;
const actions: Record<"click" | "hover" | "press" | "release", Work> = { click, hover, press, release };

export const clickOperation = defineOperation({
  name: "click",
  summary: "Click an element or a place; also hover, press, release and drag",
  method: "POST",
  path: "/click",
  timeoutMs: actionTimeoutMs,
  params: z
    .object({
      target: Target.optional(),
      position: Position.optional().describe(
        "From the upper left corner of the target; without a target, of the page",
      ),
      modifiers: Modifiers.default([]),
      action: z
        .enum(["click", "hover", "press", "release"])
        .default("click")
        .describe("press leaves the button down until release"),
      click_count: z.number().int().min(1).max(clicksMax).default(1),
      double_click: z.boolean().default(false).describe("Same as click_count 2"),
      button: Button.default("left"),
      drag_to: DragTo.optional().describe("Drag it there instead of clicking"),
      trace: Trace,
      dialog: Dialog,
      timeout_ms: TimeoutMs,
    })
    .refine(({ action, target, position }) => action === "release" || (target ?? position) !== undefined, {
      path: ["target"],
      message: "is required: a ref, a selector, or else a position {x, y}",
    }),
  result: Outcome,
  run: async (context, params) => {
    const { action, button, drag_to, double_click, click_count } = params;
    const { target = null, position = null } = params;
    const modifiers = params.modifiers.map((name) => (name === "ControlOrMeta" ? primaryModifier : name));
    const options = { target, position, modifiers, button, clicks: double_click ? 2 : click_count };
    const work: Work = drag_to
      ? (page, how, deadline) => drag(page, how, destination(drag_to), deadline)
      : actions[action];
    return acted(context, params, (page) => work(page, options, context.deadline));
  },
  tool: {
    name: "browser_click",
    description: "Click, hover over or drag an element or a position; returns what changed",
    input: z.object({
      target: toolTarget.optional(),
      trace: z.boolean().optional(),
      action: z.enum(["click", "hover", "press", "release"]).optional(),
      position: z
        .object({ x: z.number(), y: z.number() })
        .optional()
        .describe("In the target, else in the page"),
      clickCount: z.number().optional().describe("1 to 3"),
      button: Button.optional(),
      modifiers: z.array(Modifiers.element).optional(),
      dragTo: z
        .object({ target: z.string().optional(), x: z.number().optional(), y: z.number().optional() })
        .optional()
        .describe("Target, page x and y, or x and y in the target"),
      dialog: toolDialog,
    }),
    toParams: ({ doubleClick, clickCount, dragTo, dialog, ...input }) => ({
      ...input,
      double_click: doubleClick,
      click_count: clickCount,
      drag_to: dragTo,
      dialog: dialogParams(dialog),
    }),
    present,
  },
});
