/**
 * How long the console takes from a click or a key to the next picture, with 1,000 models, 500 keys and 10,000
 * requests: `bun tests/e2e/measure-interactions.ts`. Prints for each page the longest interaction by Chromium's own
 * count (in steps of 8 ms), and the longest task of the page's main thread by the processor time that it took: what
 * others do on the same machine lengthens the first, and hardly the second. Exit 1 when a task is over the goal.
 */
import type { Browser, Page } from "playwright-core";
import { openSite } from "./support/site.ts";

const GOAL_MS = 100;
const MODELS = 1_000;
const KEYS = 500;
const REQUESTS = 10_000;
const AT_ONCE = 50;

interface Noted {
  name: string;
  duration: number;
}

type Interaction = PerformanceEntry & { interactionId: number };

/** Runs in the page: keeps what every click and key took. */
function note(): void {
  const taken: Noted[] = [];
  Object.assign(globalThis, { taken });
  new PerformanceObserver((list) => {
    // The rest, such as a pointer that moves, is nothing that people wait for.
    for (const { name, duration, interactionId } of list.getEntries() as Interaction[])
      if (interactionId) taken.push({ name, duration });
  }).observe({ type: "event", durationThreshold: 16, buffered: true } as PerformanceObserverInit);
}

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  ts: number;
  dur?: number;
  tdur?: number;
}

/** The longest tasks of the thread that handles clicks and keys, by processor time. */
function longestTasks(trace: Buffer): { taken: number; event: string }[] {
  const { traceEvents: events } = JSON.parse(trace.toString()) as { traceEvents: TraceEvent[] };
  const tasks = events.filter(({ name }) => name === "RunTask");
  const handled = events.filter(({ name }) => name === "EventDispatch") as (TraceEvent & {
    args: { data: { type: string } };
  })[];
  const pages = new Set(handled.map(({ pid, tid }) => `${pid} ${tid}`));
  return tasks
    .filter(({ pid, tid }) => pages.has(`${pid} ${tid}`))
    .map(({ ts, dur = 0, tdur = 0, pid }) => {
      const inside = handled.filter((each) => each.pid === pid && each.ts >= ts && each.ts < ts + dur);
      return { taken: tdur / 1000, event: inside.map(({ args }) => args.data.type).join(" ") };
    })
    .toSorted((one, other) => other.taken - one.taken)
    .slice(0, 3);
}

const models = Array.from({ length: MODELS }, (_, i) => `model-${String(i).padStart(4, "0")}`);
const site = await openSite({ config: { apiRateLimitRpm: 1_000_000 } }, { isHurried: false });
const { gateway } = site;

async function inParallel(count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const one = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
}

async function fill(): Promise<void> {
  const token = await gateway.signIn("owner");
  await gateway.rpc(
    "users.update",
    { user_id: (await gateway.rpc("auth.me", {}, token)).id, tier: "enterprise" },
    token,
  );
  await gateway.rpc(
    "billing.tiers.set",
    { name: "enterprise", monthly_usd_quota: null, monthly_token_quota: null, rpm: 1_000_000 },
    token,
  );
  site.upstream.models = models;
  await site.addBackend({ name: "many", type: "external", url: site.upstream.url, models });
  await inParallel(KEYS - 1, (i) => gateway.rpc("keys.create", { name: `key ${i}` }, token));
  const { key } = await gateway.rpc<{ key: string }>("keys.create", { name: "caller" }, token);
  await inParallel(REQUESTS, async (i) => {
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({ model: models[i % MODELS], messages: [{ role: "user", content: "hi" }] }),
    });
    if (!answer.ok) throw new Error(await answer.text());
    await answer.text();
  });
}

const search = async (page: Page, words: string) => {
  await page.getByRole("searchbox").first().click();
  await page.keyboard.type(words, { delay: 60 });
  await page.waitForTimeout(300);
  for (const _ of words) await page.keyboard.press("Backspace", { delay: 20 });
};
const sortBy = async (page: Page, ...names: string[]) => {
  for (const name of names)
    for (let twice = 0; twice < 2; twice++) {
      await page.locator("thead").getByRole("button", { name }).first().click();
      await page.waitForTimeout(200);
    }
};

/** What people do there. */
const PAGES: Record<string, (page: Page) => Promise<void>> = {
  "/catalogue": async (page) => {
    await search(page, "model-07");
    await sortBy(page, "Model", "State");
  },
  "/keys": async (page) => {
    await search(page, "key 49");
    await sortBy(page, "Name");
    await page.getByRole("row").nth(3).click();
    await page.keyboard.press("Escape");
  },
  "/requests": async (page) => {
    await page.getByRole("row").nth(3).click();
    await page.keyboard.press("Escape");
    await page.getByRole("combobox", { name: "Model", exact: true }).click();
    await page.keyboard.type("model-08", { delay: 60 });
    await page.keyboard.press("Enter");
    await page.waitForTimeout(1_000);
    await page.getByRole("button", { name: "7 days" }).click();
    await page.waitForTimeout(1_000);
  },
  "/requests?by=models": async (page) => {
    await sortBy(page, "Requests");
  },
  "/usage": async (page) => {
    await page.getByRole("button", { name: "7 days" }).click();
    await page.getByRole("button", { name: "Table" }).click();
  },
  "/models": async (page) => {
    await page.getByRole("row").nth(1).click();
    await page.waitForTimeout(500);
    await page.keyboard.press("Escape");
  },
  "/models/list": async (page) => {
    await search(page, "model-07");
    await sortBy(page, "Model");
  },
  "/models/routes?new-route=1": async (page) => {
    await page.getByLabel("Model", { exact: true }).first().click();
    await page.keyboard.type("model-09", { delay: 60 });
  },
  "/audit": async (page) => {
    await page.getByRole("row").nth(3).click();
    await page.keyboard.press("Escape");
  },
  "/playground": async (page) => {
    await page.getByRole("combobox", { name: "Model" }).first().click();
    await page.keyboard.type("model-09", { delay: 60 });
    await page.keyboard.press("Enter");
    await page.keyboard.press("Control+k");
    await page.keyboard.type("model-05", { delay: 60 });
    await page.keyboard.press("Escape");
  },
};

let isSlow = false;
try {
  await fill();
  const { page, context } = await site.signedInAs("owner");
  const browser: Browser = context.browser()!;
  await context.addInitScript(note);
  for (const [path, act] of Object.entries(PAGES)) {
    await page.goto(gateway.url + path);
    await page.getByRole("heading", { level: 1 }).first().waitFor();
    await page.waitForTimeout(1_500);
    await browser.startTracing(page, {
      categories: ["devtools.timeline", "disabled-by-default-devtools.timeline"],
    });
    await act(page);
    await page.waitForTimeout(500);
    const tasks = longestTasks(await browser.stopTracing());
    const taken = await page.evaluate(() => (globalThis as unknown as { taken: Noted[] }).taken);
    const [worst = { name: "nothing over 16 ms", duration: 0 }] = taken.toSorted(
      (a, b) => b.duration - a.duration,
    );
    isSlow ||= tasks.some(({ taken }) => taken > GOAL_MS);
    const inWords = tasks.map(({ taken, event }) => `${taken.toFixed(0)} ms (${event || "no event"})`);
    console.log(
      `${path.padEnd(22)} ${String(worst.duration).padStart(5)} ms  ${worst.name.padEnd(12)} longest tasks: ${inWords.join(", ")}`,
    );
  }
} finally {
  await site.stop();
}
process.exit(isSlow ? 1 : 0);
