import { z } from "zod";
import { ToolError } from "../errors.ts";
import type { Agent } from "../page/inpage/agent.ts";
import { type Context, defineOperation } from "./define.ts";
import { QueryTimeoutMs, TimeoutMs } from "./schemas.ts";

const stateTimeoutMs = 5_000;
const cookiesMax = 1_000;
const text = (max: number) => z.string().max(max);

const Cookie = z.object({
  name: z.string(),
  value: z.string(),
  domain: z.string(),
  path: z.string(),
  expires: z.number().describe("Seconds since 1970; -1 for the session"),
  http_only: z.boolean(),
  secure: z.boolean(),
  same_site: z.string().nullable(),
});

export const cookiesOperation = defineOperation({
  name: "cookies",
  summary: "Cookies of all sites, or of those that an address would be sent",
  method: "GET",
  path: "/cookies",
  timeoutMs: stateTimeoutMs,
  params: z.object({ url: text(10_000).optional(), timeout_ms: QueryTimeoutMs }),
  result: z.object({ cookies: z.array(Cookie) }),
  run: async ({ browser, deadline }, { url }) => {
    const running = await browser();
    const page = await running.page();
    const { cookies } = url
      ? await page.session.send("Network.getCookies", { urls: [url] }, deadline.leftMs)
      : await running.connection.root.send("Storage.getCookies", running.context, deadline.leftMs);
    return {
      cookies: cookies.map(({ name, value, domain, path, expires, httpOnly, secure, sameSite }) => ({
        name,
        value,
        domain,
        path,
        expires,
        http_only: httpOnly,
        secure,
        same_site: sameSite ?? null,
      })),
    };
  },
});

const NewCookie = z
  .object({
    name: text(4_096).min(1),
    value: text(4_096),
    url: text(10_000).optional(),
    domain: text(300).optional(),
    path: text(4_096).optional(),
    expires: z.number().optional(),
    http_only: z.boolean().optional(),
    secure: z.boolean().optional(),
    same_site: z.enum(["Strict", "Lax", "None"]).optional(),
  })
  .refine(({ url, domain }) => (url ?? domain) !== undefined, {
    path: ["url"],
    message: "is required, or domain",
  });

export const setCookiesOperation = defineOperation({
  name: "set-cookies",
  summary: "Set cookies",
  method: "POST",
  path: "/cookies",
  timeoutMs: stateTimeoutMs,
  params: z.object({ cookies: z.array(NewCookie).min(1).max(cookiesMax), timeout_ms: TimeoutMs }),
  result: z.object({ set: z.number().int() }),
  run: async ({ browser, deadline }, { cookies }) => {
    const running = await browser();
    const wanted = cookies.map(({ http_only, same_site, ...cookie }) => ({
      ...cookie,
      httpOnly: http_only,
      sameSite: same_site,
    }));
    try {
      const given = { cookies: wanted, ...running.context };
      await running.connection.root.send("Storage.setCookies", given, deadline.leftMs);
    } catch (error) {
      if (error instanceof ToolError) throw error;
      throw new ToolError(
        "invalid_request",
        `The browser refused a cookie (${(error as Error).message}). Check its url or domain, and secure with same_site None.`,
      );
    }
    return { set: cookies.length };
  },
});

export const clearCookiesOperation = defineOperation({
  name: "clear-cookies",
  summary: "Delete all cookies",
  method: "DELETE",
  path: "/cookies",
  timeoutMs: stateTimeoutMs,
  params: z.object({ timeout_ms: QueryTimeoutMs }),
  result: z.object({ cleared: z.boolean() }),
  run: async ({ browser, deadline }) => {
    const { connection, context } = await browser();
    await connection.root.send("Storage.clearCookies", context, deadline.leftMs);
    return { cleared: true };
  },
});

const entries = z.record(z.string(), z.string());
const Stored = z.object({ origin: z.string(), local: entries, session: entries });

type Change = Parameters<Agent["storage"]>[0];
const store = async ({ page, deadline }: Context, change: Change) =>
  (await page()).mainFrame.call("storage", [change], deadline.leftMs);

export const storageOperation = defineOperation({
  name: "storage",
  summary: "Local and session storage of the page",
  method: "GET",
  path: "/storage",
  timeoutMs: stateTimeoutMs,
  params: z.object({ timeout_ms: QueryTimeoutMs }),
  result: Stored,
  run: (context) => store(context, null),
});

export const setStorageOperation = defineOperation({
  name: "set-storage",
  summary: "Set entries of the page's local or session storage; null removes one",
  method: "POST",
  path: "/storage",
  timeoutMs: stateTimeoutMs,
  params: z.object({
    local: z.record(text(10_000), text(5_000_000).nullable()).default({}),
    session: z.record(text(10_000), text(5_000_000).nullable()).default({}),
    timeout_ms: TimeoutMs,
  }),
  result: Stored,
  run: (context, { local, session }) => store(context, { local, session, isCleared: false }),
});

export const clearStorageOperation = defineOperation({
  name: "clear-storage",
  summary: "Empty the page's local and session storage",
  method: "DELETE",
  path: "/storage",
  timeoutMs: stateTimeoutMs,
  params: z.object({ timeout_ms: QueryTimeoutMs }),
  result: Stored,
  run: (context) => store(context, { local: {}, session: {}, isCleared: true }),
});
