/** Tool results as text: `### ` sections in a fixed order, pictures after them. */
import type { ToolError } from "../errors.ts";
import type { ToolOutput } from "../operations/define.ts";
import type { Browser } from "../page/browser.ts";
import type { Notice } from "../page/notices.ts";

export type Content = { type: "text"; text: string } | { type: "image"; data: string; mimeType: string };

export interface ToolResult {
  [key: string]: unknown;
  content: Content[];
  isError?: boolean;
}

function pageSection(page: NonNullable<ToolOutput["page"]>, browser: Browser | null): string {
  const lines = [`- Page URL: ${page.url}`, `- Page Title: ${page.title}`];
  if (page.status && (page.status < 200 || page.status > 299)) lines.push(`- HTTP status: ${page.status}`);
  const active = browser?.activeId ? browser.pages.get(browser.activeId) : undefined;
  if (browser && active) {
    const own = browser.console.messages.items.filter(
      (message) => message.page_id === active.id && message.document === active.documents,
    );
    const errors = own.filter(({ level }) => level === "error").length;
    const warnings = own.filter(({ level }) => level === "warning").length;
    if (errors + warnings > 0) lines.push(`- Console: ${errors} errors, ${warnings} warnings`);
  }
  return lines.join("\n");
}

function tabsSection(browser: Browser | null): string | null {
  if (!browser || browser.pages.size <= 1) return null;
  return [...browser.pages.values()]
    .map((page, index) => {
      const current = page.id === browser.activeId ? " (current)" : "";
      return `- ${index}:${current} ${page.mainFrame.url || "about:blank"}`;
    })
    .join("\n");
}

const section = (title: string, body: string | null | undefined) => (body ? [`### ${title}\n${body}`] : []);
const eventsSection = (events: Notice[]) =>
  section("Events", events.map(({ text }) => `- ${text}`).join("\n"));

/** No result is longer than its budget, whatever it holds. */
function limited(text: string, charsMax: number): string {
  if (text.length <= charsMax) return text;
  return `${text.slice(0, charsMax - 80)}\n… cut: the result has ${text.length} characters`;
}

export interface PresentOptions {
  browser: Browser | null;
  events: Notice[];
  charsMax: number;
}

export function presentOutput(output: ToolOutput, { browser, events, charsMax }: PresentOptions): ToolResult {
  const snapshot = output.snapshot === undefined ? null : `\`\`\`yaml\n${output.snapshot}\n\`\`\``;
  const sections = [
    ...section("Result", output.result),
    ...section("Open tabs", output.page ? tabsSection(browser) : null),
    ...section("Page", output.page && pageSection(output.page, browser)),
    ...section("Snapshot", snapshot),
    ...eventsSection(events),
  ];
  const content: Content[] = [{ type: "text", text: limited(sections.join("\n") || "Done.", charsMax) }];
  if (output.image)
    content.push({ type: "image", data: output.image.base64, mimeType: output.image.mimeType });
  return { content };
}

export function presentError(error: ToolError, events: Notice[], charsMax: number): ToolResult {
  const text = [`### Error\n${error.message}`, ...eventsSection(events)].join("\n");
  return { content: [{ type: "text", text: limited(text, charsMax) }], isError: true };
}
