/**
 * The engines that the same tests run on: Chromium always, WebKit where its library has been built
 * (`npm run webkit -- build`). What WebKit cannot do is listed here by name, and only that is left out.
 */
import { describe, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";

export const webkitLibrary =
  process.env.BROWSER_WEBKIT_LIB ??
  join(import.meta.dir, "../../webkit-engine/dist/libbrowser_engine_webkit.so");

export const hasWebkit = existsSync(webkitLibrary);

/** Each with the reason; docs/browser-webkit.md has the same list for users. */
const unsupportedByWebkit = {
  "console of workers": "WebKitGTK tells nobody what a worker writes to the console",
  "bodies of requests": "nor what a request brings along",
  "bodies of fetched answers": "it keeps those of documents, styles, scripts and pictures only",
  "frames in processes of their own": "frames share the process of their page, and hang it when they hang",
  "refusal of redirects to files": "WebKit itself ends the process of a page that is led to a file",
  "windows of the browser": "it shows none over a page; what would need one is refused",
  "Chromium's styles": "its own style sheet differs: a link has no cursor of its own, for one",
  "fallback of objects": "an object that cannot be loaded shows its content and has an empty document too",
  "touch and pixel ratios": "it has no fingers, and draws one pixel for each of the page's",
  "files dropped from outside": "it drags only what the page lets be dragged",
  EditContext: "WebKit does not have it",
  "listeners of elements": "it does not tell which elements a script listens to",
  "text of PDFs": "its viewer draws a few pages at a time, as a page of its own",
  "refused permissions": "it does not tell when it refuses one",
} as const;

export type Ability = keyof typeof unsupportedByWebkit;

export interface TestEngine {
  name: "chromium" | "webkit";
  env: Record<string, string | undefined>;
  lacks(ability: Ability): boolean;
}

export const chromiumPath = process.env.TEST_CHROMIUM ?? Bun.which("chromium") ?? "/usr/bin/chromium";

export const chromium: TestEngine = {
  name: "chromium",
  env: { ...process.env, BROWSER_BACKEND: "chromium", BROWSER_CHROMIUM_PATH: chromiumPath },
  lacks: () => false,
};

export const webkit: TestEngine = {
  name: "webkit",
  env: { ...process.env, BROWSER_BACKEND: "webkit", BROWSER_WEBKIT_LIB: webkitLibrary },
  lacks: (ability) => ability in unsupportedByWebkit,
};

/** `TEST_ENGINES=webkit` runs them on one engine alone. */
const wanted = process.env.TEST_ENGINES?.split(",");
const engines = [chromium, ...(hasWebkit ? [webkit] : [])].filter(
  ({ name }) => wanted?.includes(name) ?? true,
);

export function onEachEngine(name: string, body: (engine: TestEngine) => void): void {
  for (const engine of engines)
    describe(engine === chromium ? name : `${name}, on ${engine.name}`, () => body(engine));
  if (!hasWebkit && !wanted)
    test.skip(`${name}, on webkit: it is not built (npm run webkit -- build)`, () => {});
}
