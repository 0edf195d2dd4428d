import { z } from "zod";
import { ToolError } from "../errors.ts";
import type { Browser } from "../page/browser.ts";
import type { Deadline } from "../page/deadline.ts";
import type { Page as OpenPage } from "../page/page.ts";
import { defineOperation } from "./define.ts";
import { TimeoutMs } from "./schemas.ts";

const Page = z.object({
  id: z.string(),
  url: z.string(),
  active: z.boolean(),
  opener_id: z.string().nullable(),
});
export const PageList = z.object({ pages: z.array(Page) });

export function pagesOf(running: Browser): z.input<typeof Page>[] {
  return [...running.pages.values()].map((page) => ({
    id: page.id,
    url: page.mainFrame.url || "about:blank",
    active: page.id === running.activeId,
    opener_id: page.openerId,
  }));
}

export interface PageChoice {
  /** A number, as in the list of open tabs, or an id. */
  page?: string;
  close?: "page" | "others";
}

function pageNamed(browser: Browser, name: string): OpenPage {
  const open = [...browser.pages.values()];
  const page = browser.pages.get(name) ?? (/^\d{1,6}$/.test(name) ? open[Number(name)] : undefined);
  if (!page)
    throw new ToolError("not_found", `There is no page ${name}; the open ones are 0 to ${open.length - 1}.`);
  return page;
}

/** Switches to a page and closes pages, as asked for. */
export async function pagesAs(
  browser: Browser,
  { page: name, close }: PageChoice,
  deadline: Deadline,
): Promise<void> {
  if (name === undefined && close === undefined) return;
  const active = await browser.page();
  const isNumber = name === undefined || /^\d{1,6}$/.test(name) || browser.pages.has(name);
  const chosen =
    name === undefined ? active : (!isNumber && (await browser.takeOver(name))) || pageNamed(browser, name);
  if (close === "page") {
    await browser.closePages([chosen], deadline.leftMs);
    return;
  }
  await browser.activate(chosen, deadline.leftMs);
  if (close === "others") {
    const others = [...browser.pages.values()].filter((page) => page !== chosen);
    await browser.closePages(others, deadline.leftMs);
  }
}

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

export const choosePageOperation = defineOperation({
  name: "choose-page",
  summary: "Make a page the active one; or close it, or all others",
  method: "POST",
  path: "/pages",
  timeoutMs: 10_000,
  params: z.object({
    page: z.string().min(1).max(100).optional().describe("Its number or id; without one, the active page"),
    close: z.enum(["page", "others"]).optional(),
    timeout_ms: TimeoutMs,
  }),
  result: PageList,
  run: async ({ browser, deadline }, choice) => {
    const running = await browser();
    await pagesAs(running, choice, deadline);
    return { pages: pagesOf(running) };
  },
});
