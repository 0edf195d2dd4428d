import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { axeFindings, isShooting, openSite, type Site, shot, type Visit } from "./support/site.ts";

const PAGES = [
  "/",
  "/playground",
  "/usage",
  "/requests",
  "/batches",
  "/keys",
  "/groups",
  "/wallet",
  "/conversations",
  "/conversations/new",
  "/memory",
  "/video",
  "/voice",
  "/models",
  "/models/list",
  "/catalogue",
  "/models/routes",
  "/models/prices",
  "/models/providers",
  "/nodes",
  "/users",
  "/audit",
  "/docs",
  "/join",
  "/settings",
];
/** Axe takes long for it, and finds what it finds on the others. */
const LONG_PAGE = "/docs/operators-guide";
const FIRST_PAINT_SCRIPT_BYTES_MAX = 300 * 1024;
/** What a service that lacks a page's methods answers the browser with; the page says so in words. */
const isMissingSurface = (complaint: string) => complaint.includes("404 (Not Found)");

let site: Site;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  await site.gateway.signIn("operator");
});
afterEach(() => site.closeVisits());
afterAll(() => site.stop());

const settled = async ({ page }: Visit) => {
  await page.locator("main h1").first().waitFor();
  await page.locator(".skeleton").first().waitFor({ state: "detached" });
};

/** Sizes of type that are in use on the page. */
const typeSizes = ({ page }: Visit): Promise<string[]> =>
  page.evaluate(() =>
    [...document.querySelectorAll("body *")]
      .filter((element) =>
        [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent!.trim()),
      )
      .filter((element) => element.checkVisibility() && !element.closest("math"))
      .map((element) => getComputedStyle(element).fontSize),
  );

/** Loaded on a phone's screen and then shown on a desktop's: the other tests load most pages on that. */
const WIDTHS = [390, 1280];

test("every page, on a phone and a desktop: no complaint, no finding of axe, five sizes of type, nothing wider than the screen", async () => {
  const visit = await site.signedInAs("operator", { width: WIDTHS[0] });
  const { page, complaints } = visit;
  const findings: string[] = [];
  const sizes = new Map(WIDTHS.map((width) => [width, new Set<string>()]));
  for (const path of [...PAGES, LONG_PAGE]) {
    await page.setViewportSize({ width: WIDTHS[0]!, height: 844 });
    await page.goto(`${site.gateway.url}${path}`);
    await settled(visit);
    for (const width of WIDTHS) {
      if (width > 390) await page.setViewportSize({ width, height: 860 });
      // What follows the screen's width is drawn by then.
      await page.evaluate(
        () => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))),
      );
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect([path, width, overflow]).toEqual([path, width, 0]);
      for (const size of await typeSizes(visit)) sizes.get(width)!.add(size);
      const isLookedAt = width > 390 && path !== LONG_PAGE;
      for (const theme of isLookedAt || isShooting ? (["light", "dark"] as const) : []) {
        const name = path === "/" ? "overview" : path.slice(1).replaceAll("/", "-");
        await page.emulateMedia({ colorScheme: theme });
        await shot(page, `${theme}-${width}-${name}`);
        const found = isLookedAt ? await axeFindings(page, theme === "dark") : [];
        findings.push(...found.map((finding) => `${path}, ${theme}: ${finding}`));
      }
    }
  }
  expect(findings).toEqual([]);
  for (const used of sizes.values())
    expect([...used].sort()).toEqual(["12px", "13px", "14px", "16px", "24px"]);
  expect(complaints.filter((complaint) => !isMissingSurface(complaint))).toEqual([]);
}, 240_000);

test("the overview's first paint takes little script, and nothing from anywhere else", async () => {
  const { page } = await site.signedInAs("operator");
  const answer = await page.goto(site.gateway.url);
  await page.getByText("Requests a minute").waitFor();
  const bytes = await page.evaluate(() =>
    (performance.getEntriesByType("resource") as PerformanceResourceTiming[])
      .filter(({ name }) => name.endsWith(".js"))
      .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
  );
  expect(bytes).toBeGreaterThan(0);
  expect(bytes).toBeLessThan(FIRST_PAINT_SCRIPT_BYTES_MAX);
  const policy = answer?.headers()["content-security-policy"] ?? "";
  expect(policy).toContain("default-src 'none'");
  expect(policy).not.toContain("unsafe");
});

test("the palette finds by keyboard, the theme stays, sign-out forgets", async () => {
  // Signing out ends the session on the service, so the other tests' one must not be used here.
  const { page } = await site.visitAs("ada");
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: /^Find/ }).fill("gr");
  await shot(page, "palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Groups" }).waitFor();
  await page.getByRole("button", { name: "Switch to the dark theme" }).click();
  await page.reload();
  expect(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme)).toBe("dark");
  await page.getByRole("button", { name: /^Account/ }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  expect(await page.evaluate(() => localStorage.getItem("model-gateway.session"))).toBeNull();
});

test("a wrong password is refused in words; unknown pages and files are not mistaken for each other", async () => {
  const { page } = await site.visit();
  await page.goto(`${site.gateway.url}/keys`);
  await page.getByLabel("Email").fill("operator@example.com");
  await page.getByLabel("Password").fill("not the password");
  await page.locator("form").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  expect((await fetch(`${site.gateway.url}/assets/gone-12345678.js`)).status).toBe(404);
  expect((await fetch(`${site.gateway.url}/api/nothing`)).headers.get("content-type")).toContain("json");
  const text = await fetch(`${site.gateway.url}/llms.txt`);
  expect(await text.text()).toContain("/docs/reference/rpc.md");
});
