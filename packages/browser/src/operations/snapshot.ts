import { z } from "zod";
import { ToolError } from "../errors.ts";
import { frameHolding } from "../page/search.ts";
import { changesInFrames, reportMomentary } from "../page/settle.ts";
import { type SnapshotOptions, snapshot } from "../page/snapshot.ts";
import { notFound } from "../page/targets.ts";
import { isWaiting, waitUntil } from "../page/wait.ts";
import { type Context, defineOperation, type ToolOutput } from "./define.ts";
import { networkLines, readFilter, requestDetails, requestsOf, socketLines } from "./logs.ts";
import { type PageChoice, pagesAs } from "./pages.ts";
import { QueryTimeoutMs, queryFlag, queryInt, Target } from "./schemas.ts";

const readTimeoutMs = 10_000;
/** What comes along with another result is not waited for as long as what was asked for. */
const inlineMsMax = 5_000;
/** Of a page that nobody asked to see, so much comes along, and how to go on: a table of twenty rows is whole. */
const inlineCharsMax = 4_000;
const depthMax = 1_000;
const offsetMax = 1_000_000_000;
const waitMsMax = 600_000;
const wholePage = { target: null, offset: 0, depth: 0, boxes: false, find: null, terse: true };

/** The snapshot that comes along with another result; a page that cannot be read must not spoil that result. */
export async function inlineSnapshot({ browser, session, deadline }: Context): Promise<string | undefined> {
  const running = await browser();
  const page = await running.page();
  const charsMax = Math.min(inlineCharsMax, session.contentCharsMax);
  try {
    return (await snapshot(page, { ...wholePage, charsMax }, deadline.within(inlineMsMax))).yaml;
  } catch (error) {
    if (error instanceof ToolError && error.code === "timeout") running.recover(page);
    return undefined;
  }
}

/** The page as it is now, with its snapshot: what the model wants to see after an action that led elsewhere. */
export async function activePage(context: Context): Promise<ToolOutput> {
  const page = await context.page();
  const { url, title } = await page.mainFrame.call("state", [], context.deadline.leftMs);
  return { page: { url, title, status: page.status, isNews: true }, snapshot: await inlineSnapshot(context) };
}

/** What "nothing changed" is true of. */
export const comparedWith = (isPartial: boolean | undefined) =>
  isPartial ? "in the part of this large page that was compared" : "on the page";

/** What changed since the last snapshot or action, in place of the page; null when all of the page is new. */
async function changesSince({ page: active, session, deadline }: Context) {
  const page = await active();
  const main = await page.mainFrame.call("changes", [session.contentCharsMax, false], deadline.leftMs);
  if (main.isNew) return null;
  const all = [main, ...(await changesInFrames(page, [page.mainFrame], deadline))];
  for (const { momentary } of all) reportMomentary(page, momentary);
  return {
    url: main.url,
    title: main.title,
    snapshot: "",
    changes: all.flatMap(({ lines }) => lines).join("\n"),
    partial: all.some(({ isPartial }) => isPartial),
    truncated: all.some(({ truncated }) => truncated),
  };
}

async function snapshotOf({ page, deadline }: Context, options: SnapshotOptions) {
  const { yaml, url, title, truncated } = await snapshot(await page(), options, deadline);
  return { url, title, snapshot: yaml, truncated };
}

async function addressOnly({ page, deadline }: Context) {
  const { url, title } = await (await page()).mainFrame.call("state", [], deadline.leftMs);
  return { url, title, snapshot: "", truncated: false };
}

/** A list of requests, or all of one. */
async function requestLog({ browser, session, deadline }: Context, wanted: string): Promise<string[]> {
  const running = await browser();
  if (!/^r\d+$/.test(wanted)) return networkLines(requestsOf(running, readFilter(wanted)));
  const charsMax = Math.floor(session.contentCharsMax / 4);
  return requestDetails(running, wanted, { charsMax, timeoutMs: deadline.leftMs });
}

/** Lists in a query are written with commas. */
const queryList = <T extends string>(...names: T[]) =>
  z
    .union([
      z.array(z.enum(names)),
      z.string().transform((text) => text.split(",").map((each) => each.trim())),
    ])
    .pipe(z.array(z.enum(names)));

export const a11yOperation = defineOperation({
  name: "a11y",
  summary: "Accessibility tree of the page as YAML with element refs",
  method: "GET",
  path: "/a11y",
  timeoutMs: readTimeoutMs,
  params: z.object({
    target: Target.optional().describe("Only this element"),
    offset: queryInt(0, offsetMax).default(0).describe("First child to show, as a /more line says"),
    depth: queryInt(0, depthMax).default(0).describe("0: no limit"),
    boxes: queryFlag.default(false).describe("Add each element's place as [box=x,y,width,height]"),
    find: z.string().min(1).max(1_000).optional().describe("Only branches that hold this text, in any case"),
    since: queryFlag.default(false).describe("Only what changed since the last snapshot or action"),
    wait_text: z.string().min(1).max(1_000).optional().describe("Wait until this text is visible"),
    wait_selector: Target.optional().describe("Wait until this is visible"),
    wait_gone: z.string().min(1).max(1_000).optional().describe("Wait until this text or target is gone"),
    wait_ms: queryInt(0, waitMsMax).optional().describe("Alone: how long to wait; else the most to wait"),
    page: z
      .string()
      .max(100)
      .optional()
      .describe("Switch to this page first: number or id; with --attach also part of an address or title"),
    close: z
      .enum(["page", "others", "session"])
      .optional()
      .describe("Close this page or all others first, or end the named session"),
    include: queryList("network", "websockets").optional().describe("Logs to add"),
    network: z
      .string()
      .max(500)
      .optional()
      .describe(
        'Requests to add: an id (r12) for all of one, or "fetch 4xx", "failed", part of an address, "all"',
      ),
    max_chars: queryInt(500, 10_000_000).optional(),
    timeout_ms: QueryTimeoutMs,
  }),
  result: z.object({
    url: z.string(),
    title: z.string(),
    snapshot: z.string(),
    changes: z
      .string()
      .optional()
      .describe("With since: what changed, in place of the snapshot; absent when all of the page is new"),
    partial: z.boolean().optional().describe("The page is so large that only a part of it was compared"),
    truncated: z.boolean(),
    network: z.array(z.string()).optional(),
    websockets: z.array(z.string()).optional(),
  }),
  timeoutFor: ({ wait_ms, timeout_ms }) => timeout_ms ?? readTimeoutMs + (wait_ms ?? 0),
  run: async (context, params) => {
    const { session, deadline } = context;
    const { target, offset, depth, boxes, find, max_chars, include = [] } = params;
    const requests = params.network ?? (include.includes("network") ? "" : undefined);
    const hasLogs = include.length > 0 || requests !== undefined;
    if (params.close === "session") {
      await session.end();
      return { url: "", title: "", snapshot: "", truncated: false };
    }
    const browser = await context.browser();
    await pagesAs(browser, params as PageChoice, deadline);
    const { wait_text: text, wait_selector: selector, wait_gone: gone, wait_ms: ms } = params;
    const wait = { text, selector, gone, ms };
    if (isWaiting(wait)) await waitUntil(await browser.page(), wait, deadline);
    const charsMax = (max_chars ?? session.contentCharsMax) / (hasLogs ? 2 : 1);
    const shown =
      (params.since ? await changesSince(context) : null) ??
      // Whoever asks for requests alone wants no page with them.
      (params.network !== undefined && !target && !find
        ? await addressOnly(context)
        : await snapshotOf(context, {
            target: target ?? null,
            offset,
            depth,
            boxes,
            find: find ?? null,
            terse: false,
            charsMax: Math.floor(charsMax),
          }));
    const { network } = browser;
    return {
      ...shown,
      ...(requests === undefined ? {} : { network: await requestLog(context, requests) }),
      ...(include.includes("websockets") ? { websockets: socketLines(network.sockets) } : {}),
    };
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
      find: z.string().optional().describe("Only branches with this text"),
      since: z.boolean().optional().describe("Only what changed since the last look"),
      waitFor: z
        .object({
          text: z.string().optional(),
          selector: z.string().optional(),
          gone: z.string().optional().describe("Text or target"),
          ms: z.number().optional().describe("Alone: pause; else the limit"),
        })
        .optional(),
      page: z.string().optional().describe("Switch to this tab, by number"),
      close: z.enum(["page", "others", "session"]).optional().describe("Close tabs, or end the session"),
      include: z
        .array(z.enum(["network", "websockets"]))
        .optional()
        .describe("Add logs"),
      network: z
        .string()
        .optional()
        .describe("Requests: fetch 4xx, part of an address, all; or r12: one whole"),
    }),
    toParams: ({ waitFor, page, ...input }) => {
      const { text, selector, gone, ms } = (waitFor ?? {}) as Record<string, unknown>;
      const wait = { wait_text: text, wait_selector: selector, wait_gone: gone, wait_ms: ms };
      const chosen = page === undefined ? {} : { page: String(page) };
      return { ...input, ...wait, ...chosen, max_chars: undefined };
    },
    present: async (
      { url, title, snapshot: yaml, changes, partial, network, websockets },
      { session },
      { find, since, close },
    ) => {
      if (close === "session") return { result: "The session has ended." };
      const isMissing = find && changes === undefined && yaml === "";
      return {
        result: isMissing ? `Nothing on the page holds ${JSON.stringify(find)}.` : undefined,
        page: { url, title, isNews: find === undefined && !since },
        ...(changes === undefined
          ? { snapshot: yaml }
          : { changes: changes || `Nothing changed ${comparedWith(partial)}.` }),
        logs: [
          ...(network ? [{ title: "Network", lines: network }] : []),
          ...(websockets ? [{ title: "WebSockets", lines: websockets }] : []),
        ],
        logCharsMax: Math.floor(session.contentCharsMax / 2),
      };
    },
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
  run: async ({ page: active, session, deadline }, params) => {
    const target = params.target ?? null;
    const page = await active();
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
    present: async ({ html, total_chars, next_offset }) => ({
      result:
        next_offset === null
          ? html
          : `${html}\n… ${total_chars - next_offset} more characters, see offset ${next_offset}`,
    }),
  },
});
