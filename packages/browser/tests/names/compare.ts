/**
 * Prints, as rows for docs/browser.md, how often the tool, Playwright and Chromium say what is expected:
 * `bun packages/browser/tests/names/compare.ts`.
 */
import { type CDPSession, chromium, type Page } from "playwright-core";
import { chromiumPath, startTool } from "../helpers.ts";
import {
  type Case,
  casesOf,
  files,
  firstLine,
  judge,
  judgeTool,
  listCases,
  type Seen,
  selectorOf,
  startFixtures,
  type Verdict,
} from "./cases.ts";

const contestants = ["browser-tool", "Playwright", "Chromium, DevTools", "Chromium, computedRole"] as const;
type Contestant = (typeof contestants)[number];

const site = await startFixtures();
const tool = startTool();
const browser = await chromium.launch({
  executablePath: chromiumPath,
  args: ["--no-sandbox", "--enable-blink-features=ComputedAccessibilityInfo"],
});
const verdicts: Record<Contestant, Verdict[]> = {
  "browser-tool": [],
  Playwright: [],
  "Chromium, DevTools": [],
  "Chromium, computedRole": [],
};

/** Of its two kinds of snapshot the one counts that is right. */
async function playwrightSees(page: Page, id: string): Promise<Seen[]> {
  const target = page.locator(selectorOf(id)).first();
  const modes = ["ai", "default"] as const;
  return Promise.all(
    modes.map(async (mode) => firstLine(await target.ariaSnapshot({ mode, timeout: 2_000 }).catch(() => ""))),
  );
}

async function devToolsSees(page: Page, cdp: CDPSession, id: string): Promise<Seen> {
  const target = await page.locator(selectorOf(id)).first().elementHandle();
  await target!.evaluate((element) => Object.assign(globalThis, { caseElement: element }));
  const { result } = await cdp.send("Runtime.evaluate", { expression: "caseElement" });
  const { nodes } = await cdp.send("Accessibility.getPartialAXTree", {
    objectId: result.objectId!,
    fetchRelatives: false,
  });
  return { role: nodes[0]?.role?.value ?? "", name: nodes[0]?.name?.value ?? "" };
}

function computedSees(page: Page, id: string): Promise<Seen> {
  return page
    .locator(selectorOf(id))
    .first()
    .evaluate((element) => {
      const { computedRole, computedName } = element as unknown as Record<string, string | null>;
      return { role: computedRole ?? "", name: computedName ?? "" };
    });
}

for (const file of files) {
  verdicts["browser-tool"].push(...(await judgeTool(tool, site, file)));
  const page = await browser.newPage();
  await page.goto(`${site.url}/${file}`);
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Accessibility.enable");
  const cases: Case[] = casesOf(file, await page.evaluate(listCases));
  for (const each of cases) {
    verdicts.Playwright.push(judge(each, await playwrightSees(page, each.id)));
    verdicts["Chromium, DevTools"].push(judge(each, [await devToolsSees(page, cdp, each.id)]));
    verdicts["Chromium, computedRole"].push(judge(each, [await computedSees(page, each.id)]));
  }
  await page.close();
}

function cell(contestant: Contestant, kind: Case["kind"], isTentative: boolean): string {
  const judged = verdicts[contestant].filter(
    (each) => each.kind === kind && each.file.includes(".tentative.") === isTentative,
  );
  const right = judged.filter(({ isRight }) => isRight).length;
  return `${right} of ${judged.length} (${((100 * right) / judged.length).toFixed(1)} %)`;
}

console.log(`| | ${contestants.join(" | ")} |`);
console.log(`|---|${contestants.map(() => "---|").join("")}`);
for (const kind of ["name", "role"] as const)
  for (const isTentative of [false, true]) {
    const cells = contestants.map((each) => cell(each, kind, isTentative));
    console.log(`| ${kind}s${isTentative ? ", unsettled" : ""} | ${cells.join(" | ")} |`);
  }
await browser.close();
await tool.stop();
await site.stop();
