import { writeFileSync } from "node:fs";
import { z } from "zod";
import { ToolError } from "../errors.ts";
import type { Browser } from "../page/browser.ts";
import type { Deadline } from "../page/deadline.ts";
import { evaluate } from "../page/evaluate.ts";
import type { Page } from "../page/page.ts";
import { screenshot, withoutSecrets } from "../page/screenshot.ts";
import { Recording } from "../page/video.ts";
import { noSecrets } from "../policy/secrets.ts";
import { defineOperation } from "./define.ts";
import { needsChromium } from "./mock.ts";
import { Target, TimeoutMs } from "./schemas.ts";
import { activePage } from "./snapshot.ts";

const scriptTimeoutMs = 30_000;
const screenshotTimeoutMs = 30_000;
const codeCharsMax = 1_000_000;
const valueCharsDefault = 1_000_000;
/** What a model's API takes without complaint. */
const pictureBytesMax = 1_000_000;

export const evaluateOperation = defineOperation({
  name: "evaluate",
  summary: "Execute JavaScript in the page",
  method: "POST",
  path: "/evaluate",
  timeoutMs: scriptTimeoutMs,
  params: z.object({
    expression: z
      .string()
      .min(1)
      .max(codeCharsMax)
      .describe("An expression, statements, or a function to call"),
    target: Target.optional().describe("Element that the function is given"),
    max_chars: z.number().int().min(1).max(50_000_000).default(valueCharsDefault),
    timeout_ms: TimeoutMs,
  }),
  result: z.object({
    value: z.unknown().describe("The JSON value; absent when undefined or cut"),
    json: z.string().nullable().describe("The value as JSON text; cut where cut_from says so"),
    cut_from: z.number().int().nullable(),
    navigated: z.literal(true).optional().describe("The script led to a new document"),
  }),
  run: async ({ page, deadline }, { expression, target, max_chars }) => {
    const options = { code: expression, target: target ?? null, charsMax: max_chars };
    const { json, cutFrom, navigated } = await evaluate(await page(), options, deadline);
    const value: unknown = json === undefined || cutFrom !== null ? undefined : JSON.parse(json);
    return { value, json: json ?? null, cut_from: cutFrom, navigated: navigated || undefined };
  },
  tool: {
    name: "browser_evaluate",
    description: "Run JavaScript in the page",
    input: z.object({
      function: z.string().describe("() => …, or (element) => … with a target"),
      target: z.string().optional().describe("Ref or selector"),
    }),
    toParams: ({ function: code, ...input }) => ({ ...input, expression: code }),
    present: async ({ json, cut_from, navigated }, context) => {
      const text = json ?? "undefined";
      // After a new document most of the room is for its snapshot.
      const charsMax = navigated ? context.session.aroundCharsMax / 2 : context.session.contentCharsMax;
      const result =
        text.length <= charsMax
          ? text
          : `${text.slice(0, charsMax)}\n… cut, ${cut_from ?? text.length} characters in all; return less`;
      return navigated ? { ...(await activePage(context)), result } : { result };
    },
  },
});

const noPicture = { data: "", mime_type: "", width: 0, height: 0, cut: false };

async function pdfFile(browser: Browser, page: Page, deadline: Deadline): Promise<string> {
  const path = browser.fileFor("pdf");
  const print = () => page.session.send("Page.printToPDF", { printBackground: true }, deadline.leftMs);
  const { data } = await withoutSecrets(page, deadline, print);
  writeFileSync(path, browser.options.secrets.blotOut(Buffer.from(data, "base64")));
  return path;
}

/** Begins a recording of the page, or ends the one that runs. */
async function record(browser: Browser, page: Page, deadline: Deadline): Promise<{ file?: string }> {
  const { recording } = browser;
  if (recording) {
    browser.recording = null;
    recording.end();
    return { file: recording.path };
  }
  if (browser.options.secrets !== noSecrets)
    throw new ToolError("forbidden", "With --secrets nothing is recorded: a video would show them.");
  const size = await page.mainFrame.call("size", [], deadline.leftMs);
  browser.recording = new Recording(page, browser.fileFor("avi"), size);
  return {};
}

export const screenshotOperation = defineOperation({
  name: "screenshot",
  summary: "Capture a screenshot of the viewport, the whole page or an element",
  method: "POST",
  path: "/screenshot",
  timeoutMs: screenshotTimeoutMs,
  params: z.object({
    target: Target.optional(),
    type: z
      .enum(["png", "jpeg", "webp", "pdf", "video"])
      .default("png")
      .describe("pdf and video are files; a video begins, and the next call with video ends it"),
    full_page: z.boolean().default(false),
    quality: z.number().int().min(1).max(100).optional().describe("For jpeg and webp"),
    max_bytes: z
      .number()
      .int()
      .min(10_000)
      .max(100_000_000)
      .optional()
      .describe("A larger picture is taken again as jpeg, and smaller"),
    timeout_ms: TimeoutMs,
  }),
  result: z.object({
    data: z.string().describe("The picture in base64; empty for a file"),
    file: z.string().optional(),
    mime_type: z.string(),
    width: z.number(),
    height: z.number(),
    cut: z.boolean().describe("The page is larger than a picture may be"),
  }),
  run: async ({ session, browser, deadline }, { target, type, full_page, quality, max_bytes }) => {
    if (type === "video") needsChromium(session, "A video");
    const running = await browser();
    const page = await running.page();
    if (type === "pdf") return { ...noPicture, file: await pdfFile(running, page, deadline) };
    if (type === "video") return { ...noPicture, ...(await record(running, page, deadline)) };
    const bytesMax = max_bytes ?? null;
    const options = { target: target ?? null, type, fullPage: full_page, quality, bytesMax };
    const { base64, mimeType, width, height, cut } = await screenshot(page, options, deadline);
    return { data: base64, mime_type: mimeType, width, height, cut };
  },
  tool: {
    name: "browser_screenshot",
    alsoNamed: ["browser_take_screenshot"],
    description: "Picture of the page or an element. Use browser_snapshot to act",
    isReadOnly: true,
    input: z.object({
      target: z.string().optional().describe("Ref or selector"),
      type: z.enum(["png", "jpeg", "pdf", "video"]).optional().describe("video: begins or ends one"),
      fullPage: z.boolean().optional(),
    }),
    toParams: ({ fullPage, ...input }) => ({ ...input, full_page: fullPage, max_bytes: pictureBytesMax }),
    present: async ({ data, mime_type, width, height, cut, file }) => {
      if (data === "") return { result: file ? `Written to ${file}` : "The recording has begun." };
      return {
        result: `${width}×${height} ${mime_type}${cut ? ", cut at the largest size a picture may have" : ""}`,
        image: { base64: data, mimeType: mime_type },
      };
    },
  },
});
