import { z } from "zod";
import { ToolError } from "../errors.ts";
import { frameHolding } from "../page/search.ts";
import { snapshot } from "../page/snapshot.ts";
import { notFound } from "../page/targets.ts";
import { type Context, defineOperation, refAsTarget, type ToolOutput } from "./define.ts";
import { QueryTimeoutMs, queryFlag, queryInt, Target } from "./schemas.ts";

const readTimeoutMs = 10_000;
const offsetMax = 1_000_000_000;

/** The snapshot that comes along with another result; a page that cannot be read must not spoil that result. */
export async function inlineSnapshot({ browser, session, deadline }: Context): Promise<string | undefined> {
  const running = await browser();
  const page = await running.page();
  const charsMax = session.contentCharsMax;
  try {
    return (await snapshot(page, { target: null, offset: 0, depth: 0, boxes: false, charsMax }, deadline))
      .yaml;
  } catch (error) {
    if (error instanceof ToolError && error.code === "timeout") running.recover(page);
    return undefined;
  }
}

/** The page as it is now, with its snapshot: what the model wants to see after an action that led elsewhere. */
export async function activePage(context: Context): Promise<ToolOutput> {
  const page = await (await context.browser()).page();
  const { url, title } = await page.mainFrame.call("state", [], context.deadline.leftMs);
  return { page: { url, title, status: page.status }, snapshot: await inlineSnapshot(context) };
}

export const a11yOperation = defineOperation({
  name: "a11y",
  summary: "Accessibility tree of the page as YAML with element refs",
  method: "GET",
  path: "/a11y",
  timeoutMs: readTimeoutMs,
  params: z.object({
    target: Target.optional().describe("Only this element"),
    offset: queryInt(0, offsetMax).default(0).describe("First child to show, as a /more line says"),
    depth: queryInt(0, 1_000).default(0).describe("0: no limit"),
    boxes: queryFlag.default(false).describe("Add each element's place as [box=x,y,width,height]"),
    max_chars: queryInt(500, 10_000_000).optional(),
    timeout_ms: QueryTimeoutMs,
  }),
  result: z.object({ url: z.string(), title: z.string(), snapshot: z.string(), truncated: z.boolean() }),
  run: async ({ browser, session, deadline }, { target, offset, depth, boxes, max_chars }) => {
    const page = await (await browser()).page();
    const charsMax = max_chars ?? session.contentCharsMax;
    const options = { target: target ?? null, offset, depth, boxes, charsMax };
    const { yaml, url, title, truncated } = await snapshot(page, options, deadline);
    return { url, title, snapshot: yaml, truncated };
  },
  tool: {
    name: "browser_snapshot",
    description:
      "Accessibility snapshot of the page, with refs to act on. A /more line tells how to see what was left out",
    isReadOnly: true,
    input: z.object({
      target: z.string().optional().describe("Only this element: ref or selector"),
      offset: z.number().optional().describe("First child to show"),
      depth: z.number().optional(),
      boxes: z.boolean().optional(),
    }),
    toParams: (input) => refAsTarget({ ...input, max_chars: undefined }),
    present: async ({ url, title, snapshot: yaml }) => ({ page: { url, title }, snapshot: yaml }),
  },
});

export const domOperation = defineOperation({
  name: "dom",
  summary: "HTML of the page or of one element",
  method: "GET",
  path: "/dom",
  timeoutMs: readTimeoutMs,
  params: z.object({
    target: Target.optional(),
    selector: Target.optional().describe("Same as target"),
    offset: queryInt(0, offsetMax).default(0).describe("First character to return"),
    max_chars: queryInt(1, 10_000_000).optional(),
    timeout_ms: QueryTimeoutMs,
  }),
  result: z.object({
    html: z.string(),
    matches: z.number().int(),
    total_chars: z.number().int(),
    next_offset: z.number().int().nullable().describe("Where to go on; null at the end"),
  }),
  run: async ({ browser, session, deadline }, params) => {
    const target = params.target ?? params.selector ?? null;
    const page = await (await browser()).page();
    const charsMax = params.max_chars ?? session.contentCharsMax;
    const frame = target === null ? page.mainFrame : await frameHolding(page, target, deadline);
    const { found, html, total, matches } = await frame.call(
      "html",
      [target, params.offset, charsMax],
      deadline.leftMs,
    );
    if (!found) throw notFound(target!);
    const end = params.offset + html.length;
    return { html, matches, total_chars: total, next_offset: end < total ? end : null };
  },
  tool: {
    name: "browser_dom",
    description: "HTML of the page or an element",
    isReadOnly: true,
    input: z.object({
      target: z.string().optional().describe("Ref or selector"),
      offset: z.number().optional().describe("First character"),
    }),
    toParams: refAsTarget,
    present: async ({ html, total_chars, next_offset }) => ({
      result:
        next_offset === null
          ? html
          : `${html}\n… ${total_chars - next_offset} more characters, see offset ${next_offset}`,
    }),
  },
});
