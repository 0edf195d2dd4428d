import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import axe from "axe-core";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { startUpstream, type Upstream } from "./upstream.ts";

/** `SCREENSHOTS=1 npm test -- e2e` fills it. */
const SHOTS = process.env.SCREENSHOTS ? join(import.meta.dir, "../../screenshots") : null;
export const isShooting = SHOTS !== null;
/**
 * Parts of the window that are web pages themselves: their renderer takes a second of CPU in every profile. The rest
 * is what Playwright turns off and matters here, because this list takes the place of its own.
 */
const DISABLED_FEATURES = [
  "WebUIOmniboxPopup",
  "WebUIOmniboxAimPopup",
  "AimEnabled",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsUpgrades",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
];
/** Where the console keeps who is signed in. */
export const SESSION_KEY = "model-gateway.session";
const executablePath = process.env.TEST_CHROMIUM_HEADLESS ?? Bun.which("chromium") ?? undefined;

export interface Look {
  theme?: "light" | "dark";
  width?: number;
}

export interface Visit {
  page: Page;
  context: BrowserContext;
  /** What the browser complained about, and requests to any other host. */
  complaints: string[];
}

export interface Site {
  gateway: TestGateway;
  upstream: Upstream;
  /** A browser profile of its own. */
  visit(look?: Look): Promise<Visit>;
  /** The same as a person, who gets an account on the way; no page is open yet. */
  signedInAs(name: string, look?: Look): Promise<Visit>;
  /** The same with the overview open. */
  visitAs(name: string, look?: Look): Promise<Visit>;
  /** Registers the demo upstream and waits until its models can be called. */
  withBackend(): Promise<void>;
  /** Registers a backend and waits until its models can be called. */
  addBackend(registration: Record<string, unknown> & { name: string }): Promise<void>;
  /** Open pages go on asking the service for news, which takes the next test's time. */
  closeVisits(): Promise<void>;
  stop(): Promise<void>;
}

function watch(page: Page, origin: string): string[] {
  const complaints: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning")
      complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith("http") && url.origin !== origin)
      complaints.push(`asked another host: ${url.origin}`);
  });
  return complaints;
}

interface Tokens {
  access_token: string;
  refresh_token: string;
  expires_in: number;
  user: { is_admin: boolean };
}

/** Sessions as the console keeps them, one a person: signing in again and again would meet the limit. */
function rememberSessions(gateway: TestGateway) {
  const sessions = new Map<string, string>();
  return async (name: string): Promise<string> => {
    const known = sessions.get(name);
    if (known) return known;
    const account = { email: `${name}@example.com`, password: PASSWORD };
    const registered = await gateway.call<Tokens>("auth.register", { ...account, name });
    const tokens = registered.result ?? (await gateway.rpc<Tokens>("auth.login", account));
    const session = JSON.stringify({
      accessToken: tokens.access_token,
      refreshToken: tokens.refresh_token,
      expiresAtMs: Date.now() + tokens.expires_in * 1000,
      user: tokens.user,
    });
    sessions.set(name, session);
    return session;
  };
}

const launchBrowser = (): Promise<Browser> =>
  chromium.launch({
    executablePath,
    args: [
      "--no-sandbox",
      "--use-fake-device-for-media-stream",
      "--use-fake-ui-for-media-stream",
      `--disable-features=${DISABLED_FEATURES.join(",")}`,
    ],
  });
/** One for all files of a process, which it ends with. */
let launched: Promise<Browser> | null = null;

/** Runs in the page: what the console asks for every five seconds it asks for every second. */
function hurryPolls(): void {
  const { setInterval } = globalThis;
  const hurried = (run: () => void, periodMs: number) => setInterval(run, periodMs / 5);
  Object.assign(globalThis, { setInterval: hurried });
}

/** `isHurried` is for tests, which would wait for the next poll; measurements leave the pages as they are. */
export async function openSite(
  config: Parameters<typeof bootGateway>[0] = {},
  { isHurried = true } = {},
): Promise<Site> {
  const gateway = await bootGateway(config);
  const upstream = startUpstream();
  const sessionOf = rememberSessions(gateway);
  if (!(await launched)?.isConnected()) launched = launchBrowser();
  const browser = await launched!;

  const newContext = ({ theme = "light", width = 1280 }: Look = {}) =>
    browser.newContext({
      colorScheme: theme,
      viewport: { width, height: width < 500 ? 844 : 860 },
      reducedMotion: "reduce",
    });
  const openPage = async (context: BrowserContext): Promise<Visit> => {
    const page = await context.newPage();
    if (isHurried) await page.addInitScript(hurryPolls);
    return { page, context, complaints: watch(page, gateway.url) };
  };
  const visit: Site["visit"] = async (look) => openPage(await newContext(look));
  /** Profiles of people by their looks, for the next test: a new one loads and compiles the console anew. */
  const profiles = new Map<BrowserContext, { of: string; isFree: boolean }>();
  const addBackend: Site["addBackend"] = async (registration) => {
    const answer = await fetch(`${gateway.url}/api/admin/backends`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify(registration),
    });
    if (!answer.ok) throw new Error(await answer.text());
    const isHealthy = () =>
      gateway.app.rooms.routing.entries.some(
        ({ config, state }) => config.name === registration.name && state === "Healthy",
      );
    for (let tries = 0; !isHealthy(); tries++) {
      if (tries === 200) throw new Error(`${registration.name} did not become healthy`);
      await Bun.sleep(50);
    }
  };
  const signedInAs: Site["signedInAs"] = async (name, look) => {
    const stored = await sessionOf(name);
    const of = JSON.stringify([name, look]);
    const [kept] = [...profiles].find(([, profile]) => profile.isFree && profile.of === of) ?? [];
    const context = kept ?? (await newContext(look));
    profiles.set(context, { of, isFree: false });
    const visited = await openPage(context);
    await visited.page.addInitScript(
      ([key, session]) => {
        // Once: what the console does with it later, signing out included, must stay.
        if (sessionStorage.getItem("visited")) return;
        localStorage.clear();
        sessionStorage.setItem("visited", "yes");
        localStorage.setItem(key, session);
      },
      [SESSION_KEY, stored] as const,
    );
    return visited;
  };
  const closeVisits: Site["closeVisits"] = async () => {
    const leave = async (context: BrowserContext) => {
      const profile = profiles.get(context);
      if (!profile) return context.close();
      await Promise.all(context.pages().map((page) => page.close()));
      await context.setOffline(false);
      profile.isFree = true;
    };
    await Promise.all(browser.contexts().map(leave));
  };
  return {
    gateway,
    upstream,
    visit,
    signedInAs,
    async visitAs(name, look) {
      const visited = await signedInAs(name, look);
      await visited.page.goto(gateway.url);
      await visited.page.getByRole("heading", { name: "Overview" }).waitFor();
      return visited;
    },
    addBackend,
    closeVisits,
    withBackend: () => addBackend({ name: "demo", type: "external", url: upstream.url }),
    async stop() {
      profiles.clear();
      await closeVisits();
      upstream.stop();
      await gateway.stop();
    },
  };
}

/** Everything that axe finds, in words; in another theme only colours can be different. */
export async function axeFindings(page: Page, colorsOnly = false): Promise<string[]> {
  // Reading the half megabyte again for each theme would take longer than the looking.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(`${axe.source};0`);
  const violations = await page.evaluate(
    async (runOnly) => {
      const { axe } = globalThis as unknown as { axe: typeof import("axe-core") };
      // Colours that are on their way are not the ones that people read.
      const ending = document
        .getAnimations()
        .filter(({ effect }) => Number.isFinite(effect?.getComputedTiming().endTime));
      await Promise.allSettled(ending.map(({ finished }) => finished));
      const found = await axe.run(document, { resultTypes: ["violations"], ...(runOnly && { runOnly }) });
      return found.violations.map(({ id, nodes }) => ({ id, targets: nodes.map(({ target }) => target) }));
    },
    colorsOnly ? ["color-contrast"] : null,
  );
  return violations.map(
    ({ id, targets }) => `${id}: ${targets.map((target) => target.join(" ")).join(", ")}`,
  );
}

/** Chooses by typing, in a field that lists what matches. */
export async function pick(page: Page, label: string, choice: string): Promise<void> {
  const field = page.getByRole("combobox", { name: label, exact: true });
  await field.fill(choice);
  await field.press("Enter");
}

/** Keeps a picture of the page for whoever wants to look. */
export async function shot(page: Page, name: string): Promise<void> {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}
