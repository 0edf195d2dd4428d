import { z } from "zod";
import { ToolError } from "../errors.ts";
import { whyNoSandbox } from "../launch/launch.ts";
import type { Browser } from "../page/browser.ts";
import { version } from "../version.ts";
import { defineOperation } from "./define.ts";
import { PageList, pagesOf } from "./pages.ts";

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
    sandbox: z.boolean().describe("Whether Chromium's sandbox is on"),
    viewport: z.object({ width: z.number(), height: z.number() }).nullable(),
    pages: PageList.shape.pages,
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
      sandbox: whyNoSandbox() === null,
      viewport: running?.emulation.viewport ?? options.viewport,
      pages: running ? pagesOf(running) : [],
      tokens_max: options.tokensMax,
    };
  },
});

export const sessionsOperation = defineOperation({
  name: "sessions",
  summary: "Named sessions that are open",
  method: "GET",
  path: "/sessions",
  params: z.object({}),
  result: z.object({ sessions: z.array(z.object({ session: z.string(), idle_ms: z.number() })) }),
  run: async ({ session }) => ({
    sessions: session.sessions.map(({ name, lastUsedMs }) => ({
      session: name,
      idle_ms: Math.round(performance.now() - lastUsedMs),
    })),
  }),
});

export const endSessionOperation = defineOperation({
  name: "end-session",
  summary: "End a named session: its pages, cookies and storage are gone",
  method: "DELETE",
  path: "/sessions",
  params: z.object({}),
  result: z.object({ ended: z.string() }),
  run: async ({ session }) => {
    await session.end();
    return { ended: session.name };
  },
});
