/** Tool results as text: `### ` sections in a fixed order, pictures after them. */
import type { ToolError } from "../errors.ts";
import type { ToolOutput } from "../operations/define.ts";
import { newestWithin } from "../operations/logs.ts";
import type { Browser } from "../page/browser.ts";
import type { Notice } from "../page/notices.ts";
import type { Session } from "../session.ts";

export type Content = { type: "text"; text: string } | { type: "image"; data: string; mimeType: string };

export interface ToolResult {
  [key: string]: unknown;
  content: Content[];
  isError?: boolean;
}

const urlCharsMax = 300;
const titleCharsMax = 150;
const tabsShownMax = 5;
const eventCharsMax = 400;
const logLinesMax = 100;

const short = (text: string, charsMax: number) =>
  text.length > charsMax ? `${text.slice(0, charsMax)}…` : text;

function pageSection(page: NonNullable<ToolOutput["page"]>, browser: Browser | null): string {
  const lines = [
    `- Page URL: ${short(page.url, urlCharsMax)}`,
    `- Page Title: ${short(page.title, titleCharsMax)}`,
  ];
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
  const tabs = [...browser.pages.values()].map((page, index) => {
    const current = page.id === browser.activeId ? " (current)" : "";
    return `- ${index}:${current} ${short(page.mainFrame.url || "about:blank", titleCharsMax)}`;
  });
  // The newest are the ones that matter.
  const left = tabs.length - tabsShownMax;
  return left > 0 ? [`- … ${left} more`, ...tabs.slice(left)].join("\n") : tabs.join("\n");
}

/** The newest lines of each log, within what all of them may take. */
function logSections({ logs = [], logCharsMax = 0 }: ToolOutput): string[] {
  return logs.flatMap(({ title, lines }) => {
    const kept = newestWithin(lines.slice(-logLinesMax), logCharsMax / logs.length);
    const left = lines.length - kept.length;
    return section(title, [...(left > 0 ? [`… ${left} older`] : []), ...kept].join("\n") || "none");
  });
}

const section = (title: string, body: string | null | undefined) => (body ? [`### ${title}\n${body}`] : []);

/** The newest events that fit, and the number of older ones. */
function eventsSection(events: Notice[], charsMax: number): string[] {
  const lines: string[] = [];
  let chars = 0;
  for (const { text, count } of events.toReversed()) {
    const line = `- ${short(text, eventCharsMax)}${count ? ` (${count} times)` : ""}`;
    chars += line.length + 1;
    if (chars > charsMax && lines.length > 0) break;
    lines.unshift(line);
  }
  const left = events.length - lines.length;
  return section("Events", [...(left > 0 ? [`- … ${left} more before these`] : []), ...lines].join("\n"));
}

/** Cuts a result to its budget. Events are always included. */
function limited(sections: string[], events: Notice[], session: Session): string {
  const { charsMax, aroundCharsMax } = session;
  const after = eventsSection(events, aroundCharsMax / 2)
    .map((text) => `\n${text}`)
    .join("");
  const text = sections.join("\n");
  const room = charsMax - after.length;
  if (text.length <= room) return (text + after).trimStart();
  return `${text.slice(0, room - 80)}\n… cut: the result has ${text.length} characters${after}`;
}

export interface PresentOptions {
  browser: Browser | null;
  events: Notice[];
  session: Session;
}

export function presentOutput(output: ToolOutput, { browser, events, session }: PresentOptions): ToolResult {
  const snapshot = output.snapshot === undefined ? null : `\`\`\`yaml\n${output.snapshot}\n\`\`\``;
  const page = output.page ? pageSection(output.page, browser) : null;
  const tabs = output.page ? tabsSection(browser) : null;
  const isNews = output.page?.isNews === true;
  // What was reported last is not repeated after each click.
  const news = (what: "page" | "tabs", text: string | null) => {
    if (text === null || (!isNews && session.told[what] === text)) return null;
    session.told[what] = text;
    return text;
  };
  const sections = [
    ...section("Result", output.result),
    ...section("Open tabs", news("tabs", tabs)),
    ...section("Page", news("page", page)),
    ...section("Changes", output.changes),
    ...section("Snapshot", snapshot),
    ...logSections(output),
  ];
  const content: Content[] = [{ type: "text", text: limited(sections, events, session) || "Done." }];
  if (output.image)
    content.push({ type: "image", data: output.image.base64, mimeType: output.image.mimeType });
  return { content };
}

export function presentError(error: ToolError, events: Notice[], session: Session): ToolResult {
  const text = limited(section("Error", error.message), events, session);
  return { content: [{ type: "text", text }], isError: true };
}
