import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import type { Page } from "playwright-core";
import { axeFindings, openSite, pick, type Site, shot, type Visit } from "./support/site.ts";

const DOT =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/** What models write: the demo upstream says it back. */
const RICH = `A sum $\\frac{a_1^2}{\\sqrt{b}} \\leq \\sum_{i=1}^n x_i$ that costs $5 or $10, and

$$\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix} \\mathbb{R}^2$$

\`\`\`python
def greet(name):  # says hello
    return f"Hello, {name}" * 3
\`\`\`

| Model | Price |
|---|---|
| small | **1** |

![a dot](data:image/png;base64,${DOT})`;

let site: Site;
let visit: Visit;
beforeAll(async () => {
  site = await openSite();
  await site.withBackend();
  visit = await site.visitAs("talker");
});
afterAll(() => site.stop());

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel("Your message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

async function converse(page: Page, model: string, text: string): Promise<void> {
  await page.goto(`${site.gateway.url}/conversations/new?model=${model}`);
  await say(page, text);
}

const messages = (page: Page) => page.getByRole("region", { name: "Messages" });

test("code, math, tables and images of an answer are drawn, and code is copied", async () => {
  const { page, context, complaints } = visit;
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await converse(page, "demo-chat", RICH);
  const answer = messages(page).getByRole("article", { name: "Answer" });
  const code = answer.getByRole("figure", { name: "python code" });
  await answer.waitFor();
  // What draws formulas and colours code is loaded with the first of them.
  await answer.locator("math").last().waitFor();
  await code.locator(".code-keyword").first().waitFor();
  expect(await answer.locator("math mfrac, math msqrt, math msubsup, math mtable").count()).toBe(5);
  expect(await answer.locator("math").last().textContent()).toContain("ℝ");
  expect(await answer.textContent()).toContain("costs $5 or $10");
  expect(await code.locator("figcaption").textContent()).toContain("python");
  expect(await code.locator(".code-keyword").allTextContents()).toEqual(["def", "return"]);
  expect(await code.locator(".code-comment").textContent()).toBe("# says hello");
  await answer.getByRole("cell", { name: "small" }).waitFor();
  await answer.getByRole("img", { name: "a dot" }).waitFor();
  await code.getByRole("button", { name: "Copy" }).click();
  await code.getByRole("button", { name: "Copied" }).waitFor();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toStartWith("def greet(name):");
  await shot(page, "conversation-rich");
  expect(complaints).toEqual([]);
});

test("a message is edited and sent again, an answer is given again, and the history holds neither twice", async () => {
  const { page } = visit;
  await converse(page, "demo-chat", "first question");
  await messages(page).getByText("You said: first question").waitFor();
  await page.getByRole("heading", { name: "first question" }).waitFor();
  await say(page, "second question");
  await messages(page).getByText("You said: second question").waitFor();

  // The second one has its button once it is stored.
  await page.getByRole("button", { name: "Edit and send again" }).nth(1).click();
  await page.getByLabel("Edit the message").fill("second thought");
  await page.keyboard.press("Enter");
  await messages(page).getByText("You said: second thought").waitFor();
  expect(await messages(page).getByText("second question").count()).toBe(0);

  const before = site.upstream.requests.length;
  await page.getByRole("button", { name: "Answer again" }).click();
  await until("the request", () => site.upstream.requests.length > before);
  await page.getByRole("button", { name: "Answer again" }).waitFor();
  expect(site.upstream.requests.at(-1)!.messages.map(({ content }) => content)).toEqual([
    "first question",
    "You said: first question",
    "second thought",
  ]);
  await page.reload();
  await messages(page).getByText("You said: second thought").waitFor();
  expect(await messages(page).getByRole("article").count()).toBe(4);
});

test("a turn that has just ended is answered again in its place, also when the page does not have it yet", async () => {
  const { page } = visit;
  await converse(page, "demo-chat", "a beginning");
  await messages(page).getByText("You said: a beginning").waitFor();
  await messages(page).getByRole("article").nth(1).waitFor();
  const late = Promise.withResolvers<void>();
  let reads = 0;
  await page.route("**/api/rpc", async (route) => {
    const asked = route.request().postData() ?? "";
    if (asked.includes('"conversations.rewind"')) late.resolve();
    if (asked.includes('"conversations.get"') && reads++ === 0) await late.promise;
    await route.continue();
  });
  await say(page, "asked once");
  await messages(page).getByText("You said: asked once").waitFor();
  const before = site.upstream.requests.length;
  await page.getByRole("button", { name: "Answer again" }).last().click();
  await until("the request", () => site.upstream.requests.length > before);
  late.resolve();
  await page.unrouteAll({ behavior: "wait" });
  expect(site.upstream.requests.at(-1)!.messages.map(({ content }) => content)).toEqual([
    ...["a beginning", "You said: a beginning", "asked once"],
  ]);
});

test("an answer goes on while other pages are looked at, and over a reload", async () => {
  const { page } = visit;
  await converse(page, "demo-slow", "count for me");
  await messages(page).getByText("word3").waitFor();
  const aborted = site.upstream.aborted();
  await page.getByRole("link", { name: "Keys" }).first().click();
  await page.getByRole("heading", { name: "Keys", exact: true }).waitFor();
  await page.goBack();
  await messages(page).getByText("word12").waitFor();
  await page.reload();
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await messages(page).getByText("word12").waitFor();
  site.upstream.hurry();
  // Whole in the end, whatever was said while the page was loading.
  await messages(page)
    .getByText(/word12 word13 .* word58 word59/)
    .waitFor();
  await page.getByRole("button", { name: "Answer again" }).waitFor();
  expect(site.upstream.aborted()).toBe(aborted);
  expect(await messages(page).getByText("count for me").count()).toBe(1);
});

test("a stopped turn says so, its part is kept over a reload, and it is answered again on request", async () => {
  const { page } = visit;
  await converse(page, "demo-slow", "stop me");
  await messages(page).getByText("word2").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await messages(page).getByText("Stopped").waitFor();
  await page.reload();
  await messages(page).getByText("word2").waitFor();
  await pick(page, "Model", "demo-chat");
  await page.getByRole("button", { name: "Answer again" }).click();
  await messages(page).getByText("You said: stop me").waitFor();
  await messages(page)
    .getByText(/\d out/)
    .first()
    .waitFor();
  const articles = messages(page).getByRole("article");
  await until("what was stored takes its place", async () => (await articles.count()) === 2);
});

test("files are attached: text travels in the message, images beside it, anything else is refused", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/conversations/new?model=demo-chat`);
  const files = page.locator("input[type=file]");
  await files.setInputFiles({ name: "film.mp4", mimeType: "video/mp4", buffer: Buffer.from([0, 1, 2, 255]) });
  await page.getByText("film.mp4 is neither an image nor text").waitFor();
  await files.setInputFiles([
    { name: "dot.png", mimeType: "image/png", buffer: Buffer.from(DOT, "base64") },
    { name: "notes.csv", mimeType: "text/csv", buffer: Buffer.from("a,b\n1,2") },
  ]);
  await page.getByRole("img", { name: "dot.png" }).waitFor();
  await say(page, "what is this?");
  await messages(page).getByText("You said: what is this?").waitFor();
  expect(site.upstream.requests.at(-1)!.messages.at(-1)?.content).toEqual([
    { type: "text", text: "what is this?\n\nAttached file: notes.csv\n~~~~~~\na,b\n1,2\n~~~~~~" },
    { type: "image_url", image_url: { url: `data:image/png;base64,${DOT}` } },
  ]);
  await page.reload();
  const mine = page.getByRole("article", { name: "You" });
  await mine.getByText("notes.csv").click();
  await mine.getByRole("figure", { name: "notes.csv" }).waitFor();
  await mine.getByRole("img").waitFor();
});

test("conversations are searched, and an unknown one leads back", async () => {
  const { page } = visit;
  await page.goto(`${site.gateway.url}/conversations`);
  const list = page.getByRole("navigation", { name: "Conversations" });
  await list.getByRole("link", { name: /stop me/ }).waitFor();
  await page.getByLabel("Search the conversations").fill("THOUGHT no such");
  await list.getByText("No title matches.").waitFor();
  await page.getByLabel("Search the conversations").fill("First");
  expect(await list.getByRole("link").count()).toBe(1);
  await page.goto(`${site.gateway.url}/conversations/${crypto.randomUUID()}`);
  await page.getByText("Conversation not found").waitFor();
  await page.getByRole("link", { name: "All conversations" }).click();
  await page.getByRole("heading", { name: "New conversation" }).waitFor();
});

test("the answer is announced sentence by sentence", async () => {
  const { page } = visit;
  await converse(page, "demo-chat", "One is whole. Two is too. And the rest");
  const log = page.getByRole("log");
  await log.getByText("And the rest").waitFor();
  expect(await log.getAttribute("aria-live")).toBe("polite");
  expect(await log.locator("p").allTextContents()).toEqual([
    "You said:",
    "One is whole.",
    "Two is too.",
    "And the rest",
  ]);
});

for (const theme of ["light", "dark"] as const)
  test(`on a phone (${theme}) everything of a conversation is in reach, above the pinned composer`, async () => {
    const { page } = await site.signedInAs("talker", { width: 390, theme });
    await page.goto(`${site.gateway.url}/conversations`);
    await shot(page, `${theme}-390-conversation-list`);
    await page.getByRole("link", { name: /A sum/ }).click();
    await page.goto(`${page.url()}?model=${"a-very-long-model-name-".repeat(4)}`);
    await messages(page).getByRole("table").waitFor();
    await shot(page, `${theme}-390-conversation-rich`);
    for (const name of ["Delete the conversation", "Rename this conversation", "All conversations"]) {
      const box = await page.getByRole(name.startsWith("All") ? "link" : "button", { name }).boundingBox();
      expect([name, box!.x >= 0 && box!.x + box!.width <= 390]).toEqual([name, true]);
    }
    expect(await axeFindings(page, theme === "dark")).toEqual([]);
    const composer = (await page.locator(".composer").boundingBox())!;
    const bar = (await page.locator(".bottom-bar").boundingBox())!;
    expect(composer.y + composer.height).toBeLessThanOrEqual(bar.y);
    // Scrolled so that a table's head passes by it, nothing lies over the composer.
    await messages(page).evaluate((box) => box.scrollTo({ top: 0 }));
    const top = await page.evaluate(
      ([x, y]) => document.elementFromPoint(x!, y!)?.closest(".composer") !== null,
      [composer.x + 20, composer.y + 12],
    );
    expect(top).toBe(true);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBe(0);
  });

test("conversations at full width, both themes", async () => {
  for (const theme of ["light", "dark"] as const) {
    const { page } = await site.signedInAs("talker", { theme });
    await page.goto(`${site.gateway.url}/conversations`);
    await shot(page, `${theme}-1280-conversation-list`);
    await page.getByRole("link", { name: /A sum/ }).click();
    await messages(page).getByRole("table").waitFor();
    await shot(page, `${theme}-1280-conversation-rich`);
    expect(await axeFindings(page, theme === "dark")).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollHeight - innerHeight)).toBe(0);
  }
});

test("an answer whose connection is lost says so and goes on", async () => {
  const { page } = visit;
  for (const path of ["/playground?model=demo-slow", "/conversations/new?model=demo-slow"]) {
    await page.goto(`${site.gateway.url}${path}`);
    await page.route(
      "**/api/rpc/events*",
      (route) => route.fulfill({ contentType: "text/event-stream", body: ": lost\n\n" }),
      { times: 1 },
    );
    await say(page, "count");
    await page.getByText("The connection was lost while this answer was being written.").waitFor();
    await shot(page, `connection-lost-${path.slice(1, 5)}`);
    await page.getByRole("button", { name: "Continue" }).click();
    await until("the whole answer", async () => {
      site.upstream.hurry();
      return (await page.getByText("word59").count()) > 0;
    });
  }
});
