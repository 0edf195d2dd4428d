/**
 * How long the overview takes to be there with its data in a browser that has never seen the console:
 * `bun tests/e2e/measure-first-load.ts`. The service is a process of its own with the demo's month of usage; each load has
 * a fresh profile and counts from the start of the navigation, not from the start of the browser.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const LOADS = 15;
const ADMIN_TOKEN = "measure-admin-token-0123456789";
const ROOT = join(import.meta.dir, "../..");

async function startService(dataDir: string) {
  const child = Bun.spawn([process.execPath, "packages/gateway/src/main.ts", "--demo"], {
    cwd: ROOT,
    env: {
      ...process.env,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: dataDir,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      SERVICE_REGISTRATION_OPEN: "true",
      SERVICE_DRAIN_GRACE_MS: "0",
    },
    stdout: "pipe",
    stderr: "ignore",
  });
  let out = "";
  for await (const chunk of child.stdout) {
    out += new TextDecoder().decode(chunk);
    const email = /(\S+@\S+)/.exec(out)?.[1];
    const url = /(http:\/\/127\.0\.0\.1:\d+)/.exec(out)?.[1];
    if (url && email && out.includes("curl")) return { child, url, out };
  }
  throw new Error(`the service did not start:\n${out}`);
}

/** Runs in the page: notes when everything that the overview shows at once has its data. */
function noteWhenThere(): void {
  const there = () =>
    document.querySelectorAll(".figure .value").length >= 5 &&
    [...document.querySelectorAll(".figure .value")].every(({ textContent }) => textContent !== "–") &&
    document.querySelector(".minutes svg") !== null &&
    document.querySelector(".strips li") !== null &&
    document.querySelector(".table tbody tr") !== null &&
    document.querySelector(".skeleton") === null;
  const observer = new MutationObserver(() => {
    if (!there()) return;
    observer.disconnect();
    requestAnimationFrame(() => Object.assign(globalThis, { thereMs: performance.now() }));
  });
  observer.observe(document, { childList: true, subtree: true, characterData: true });
}

const dataDir = mkdtempSync(join(tmpdir(), "first-load-"));
const service = await startService(dataDir);
const browser = await chromium.launch({
  executablePath: process.env.TEST_CHROMIUM ?? Bun.which("chromium") ?? undefined,
  args: ["--no-sandbox"],
});
try {
  const [, email = ""] = /(\S+@[\w.-]+)/.exec(service.out) ?? [];
  const [, password = ""] = /password[:\s]+(\S+)/i.exec(service.out) ?? [];
  const answer = await fetch(`${service.url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.login", params: { email, password } }),
  });
  const { result, error } = (await answer.json()) as {
    result?: { access_token: string; refresh_token: string; expires_in: number; user: unknown };
    error?: { message: string };
  };
  if (!result) throw new Error(`cannot sign in as ${email}: ${error?.message}`);
  const session = JSON.stringify({
    accessToken: result.access_token,
    refreshToken: result.refresh_token,
    expiresAtMs: Date.now() + result.expires_in * 1000,
    user: result.user,
  });
  const loads: { thereMs: number; paintMs: number; scriptBytes: number }[] = [];
  for (let i = 0; i < LOADS; i++) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
    await context.addInitScript((stored) => localStorage.setItem("model-gateway.session", stored), session);
    await context.addInitScript(noteWhenThere);
    const page = await context.newPage();
    await page.goto(service.url, { waitUntil: "commit" });
    await page.waitForFunction(() => "thereMs" in globalThis);
    loads.push(
      await page.evaluate(() => ({
        thereMs: (globalThis as unknown as { thereMs: number }).thereMs,
        paintMs: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.NaN,
        scriptBytes: (performance.getEntriesByType("resource") as PerformanceResourceTiming[])
          .filter(({ name }) => name.endsWith(".js"))
          .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
      })),
    );
    await context.close();
  }
  const sorted = (name: keyof (typeof loads)[number]) =>
    loads.map((load) => load[name]).sort((a, b) => a - b);
  const at = (list: readonly number[], share: number) =>
    Math.round(list[Math.floor((list.length - 1) * share)]!);
  for (const name of ["paintMs", "thereMs", "scriptBytes"] as const) {
    const list = sorted(name);
    console.log(
      `${name}: first ${Math.round(loads[0]![name])}, median ${at(list, 0.5)}, p90 ${at(list, 0.9)}, most ${at(list, 1)}`,
    );
  }
} finally {
  await browser.close();
  service.child.kill();
  await service.child.exited;
  rmSync(dataDir, { recursive: true, force: true });
}
