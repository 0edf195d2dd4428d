import { z } from "zod";
import { ToolError } from "../errors.ts";
import type { Browser } from "../page/browser.ts";
import { version } from "../version.ts";
import { defineOperation } from "./define.ts";
import { TimeoutMs } from "./schemas.ts";

const startedAt = performance.now();

export const healthOperation = defineOperation({
  name: "health",
  summary: "Server health; does not start the browser",
  method: "GET",
  path: "/health",
  params: z.object({}),
  result: z.object({
    status: z.string(),
    version: z.string(),
    uptime_ms: z.number(),
    browser_running: z.boolean(),
  }),
  run: async ({ session }) => ({
    status: "ok",
    version,
    uptime_ms: Math.round(performance.now() - startedAt),
    browser_running: session.isStarted,
  }),
});

const Page = z.object({
  id: z.string(),
  url: z.string(),
  active: z.boolean(),
  opener_id: z.string().nullable(),
});

const versionTimeoutMs = 5_000;

/** What the browser says of itself; a foreign engine need not say anything. */
async function aboutBrowser({ connection }: Browser): Promise<{ product?: string; userAgent?: string }> {
  try {
    return await connection.root.send("Browser.getVersion", undefined, versionTimeoutMs);
  } catch (error) {
    if (error instanceof ToolError && error.code === "not_supported") return {};
    throw error;
  }
}

export const infoOperation = defineOperation({
  name: "info",
  summary: "Browser status and selected backend",
  method: "GET",
  path: "/info",
  params: z.object({}),
  result: z.object({
    running: z.boolean(),
    backend: z.string().nullable(),
    source: z.string().nullable().describe("Where the engine was found"),
    path: z.string().nullable(),
    product: z.string().nullable(),
    user_agent: z.string().nullable(),
    headful: z.boolean(),
    viewport: z.object({ width: z.number(), height: z.number() }).nullable(),
    pages: z.array(Page),
    tokens_max: z.number(),
  }),
  run: async ({ session, browser }) => {
    const { engine, options } = session;
    const running = session.isStarted ? await browser() : null;
    const about = running ? await aboutBrowser(running) : null;
    return {
      running: running !== null,
      backend: engine?.name ?? options.backend ?? "auto",
      source: engine?.source ?? null,
      path: engine ? (engine.kind === "cdp" ? engine.path : engine.libraryPath) : null,
      product: about?.product ?? null,
      user_agent: about?.userAgent ?? null,
      headful: options.headful,
      viewport: running?.viewport ?? options.viewport,
      pages: running ? pagesOf(running) : [],
      tokens_max: options.tokensMax,
    };
  },
});

type Running = Awaited<ReturnType<Parameters<Parameters<typeof defineOperation>[0]["run"]>[0]["browser"]>>;

function pagesOf(running: Running): z.input<typeof Page>[] {
  return [...running.pages.values()].map((page) => ({
    id: page.id,
    url: page.mainFrame.url || "about:blank",
    active: page.id === running.activeId,
    opener_id: page.openerId,
  }));
}

const pageId = z.object({ page_id: z.string().min(1).max(100), timeout_ms: TimeoutMs });
const PageList = z.object({ pages: z.array(Page) });

export const pagesOperation = defineOperation({
  name: "pages",
  summary: "Open pages; operations act on the active one",
  method: "GET",
  path: "/pages",
  params: z.object({}),
  result: PageList,
  run: async ({ browser }) => {
    const running = await browser();
    await running.page();
    return { pages: pagesOf(running) };
  },
});

export const activatePageOperation = defineOperation({
  name: "activate-page",
  summary: "Make a page the active one",
  method: "POST",
  path: "/pages/activate",
  timeoutMs: 5_000,
  params: pageId,
  result: PageList,
  run: async ({ browser }, { page_id }) => {
    const running = await browser();
    running.activate(page_id);
    return { pages: pagesOf(running) };
  },
});

export const closePageOperation = defineOperation({
  name: "close-page",
  summary: "Close a page",
  method: "POST",
  path: "/pages/close",
  timeoutMs: 5_000,
  params: pageId,
  result: PageList,
  run: async ({ browser }, { page_id }) => {
    const running = await browser();
    await running.closePage(running.activate(page_id));
    return { pages: pagesOf(running) };
  },
});
