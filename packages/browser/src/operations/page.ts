import { z } from "zod";
import { evaluate } from "../page/evaluate.ts";
import { screenshot } from "../page/screenshot.ts";
import { defineOperation } from "./define.ts";
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
  run: async ({ browser, deadline }, { expression, target, max_chars }) => {
    const page = await (await browser()).page();
    const options = { code: expression, target: target ?? null, charsMax: max_chars };
    const { json, cutFrom, navigated } = await evaluate(page, options, deadline);
    const value: unknown = json === undefined || cutFrom !== null ? undefined : JSON.parse(json);
    return { value, json: json ?? null, cut_from: cutFrom, navigated: navigated || undefined };
  },
  tool: {
    name: "browser_evaluate",
    description: "Run JavaScript in the page",
    input: z.object({
      function: z.string().describe("() => …, or (element) => … with a target"),
      target: z.string().optional().describe("Ref or selector"),
      element: z.string().optional(),
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

export const screenshotOperation = defineOperation({
  name: "screenshot",
  summary: "Capture a screenshot of the viewport, the whole page or an element",
  method: "POST",
  path: "/screenshot",
  timeoutMs: screenshotTimeoutMs,
  params: z.object({
    target: Target.optional(),
    type: z.enum(["png", "jpeg", "webp"]).default("png"),
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
    data: z.string().describe("The picture in base64"),
    mime_type: z.string(),
    width: z.number(),
    height: z.number(),
    cut: z.boolean().describe("The page is larger than a picture may be"),
  }),
  run: async ({ browser, deadline }, { target, type, full_page, quality, max_bytes }) => {
    const page = await (await browser()).page();
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
      type: z.enum(["png", "jpeg"]).optional(),
      fullPage: z.boolean().optional(),
    }),
    toParams: ({ fullPage, ...input }) => ({ ...input, full_page: fullPage, max_bytes: pictureBytesMax }),
    present: async ({ data, mime_type, width, height, cut }) => ({
      result: `${width}×${height} ${mime_type}${cut ? ", cut at the largest size a picture may have" : ""}`,
      image: { base64: data, mimeType: mime_type },
    }),
  },
});
