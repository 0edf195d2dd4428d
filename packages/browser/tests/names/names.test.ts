import { afterAll, beforeAll, expect, test } from "bun:test";
import { type Site, startTool, type Tool } from "../helpers.ts";
import { files, judgeTool, startFixtures } from "./cases.ts";

/** Where the tool differs, and why. All of it is unsettled ("tentative") where it comes from. */
const differences: Record<string, string[]> = {
  // A figure is called after its caption, as it is in snapshots that agents know.
  "html-aam/figure-name-no-figcaption.tentative.html": [
    'name: "", not "y"',
    'name: "title", not "y"',
    'name: "", not "figcaption"',
  ],
  // A popover that is not open is not on the page, and html-cite is not an ARIA role.
  "html-aam/roles-minimum.tentative.html": ['role: "group", not ""', 'role: "html-cite", not "generic"'],
  // In HTML <image> is read as <img>, and what stands in it does not belong to it.
  "svg-aam/role/role-img.tentative.html": [
    'role: "image", not "generic"',
    'name: "x", not ""',
    'role: "image", not "generic"',
  ],
};

let tool: Tool;
let site: Site;
beforeAll(async () => {
  tool = startTool();
  site = await startFixtures();
});
afterAll(async () => {
  await tool.stop();
  await site.stop();
});

test.each(files)("names and roles: %s", async (file) => {
  const verdicts = await judgeTool(tool, site, file);
  expect(verdicts.length).toBeGreaterThan(0);
  const wrong = verdicts
    .filter(({ isRight }) => !isRight)
    .map(({ kind, expected, got }) => `${kind}: ${JSON.stringify(expected)}, not ${JSON.stringify(got)}`);
  expect(wrong).toEqual(differences[file] ?? []);
});
