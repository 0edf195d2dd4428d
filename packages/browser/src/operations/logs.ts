/** Requests and WebSocket frames as lines for a model. */
import type { NetworkEntry, SocketEntry } from "../capture/network.ts";
import type { Browser } from "../page/browser.ts";

const urlCharsMax = 200;
const payloadCharsMax = 200;
const framesPerSocketMax = 20;

/** One line; line breaks from the page are removed. */
function short(text: string, charsMax: number): string {
  const line = text.slice(0, charsMax).replace(/\s+/g, " ");
  return text.length > charsMax ? `${line}…` : line;
}

export function newestWithin(lines: string[], charsMax: number): string[] {
  let chars = 0;
  let first = lines.length;
  while (first > 0 && chars + lines[first - 1]!.length < charsMax) {
    first--;
    chars += lines[first]!.length + 1;
  }
  return lines.slice(first);
}

export function networkLines(entries: readonly NetworkEntry[]): string[] {
  return entries.map((entry) => {
    const outcome = [entry.status, entry.error].filter((each) => each !== null).join(" ") || "pending";
    const took = entry.duration_ms === null ? "" : ` ${entry.duration_ms} ms`;
    return `${entry.id} ${entry.method} ${short(entry.url, urlCharsMax)} ${outcome} ${entry.resource_type}${took}`;
  });
}

export function socketLines(sockets: readonly SocketEntry[]): string[] {
  return sockets.flatMap((socket) => {
    const frames = socket.frames.slice(-framesPerSocketMax);
    const left = socket.frames.length - frames.length + socket.frames_dropped;
    return [
      `${socket.id} ${short(socket.url, urlCharsMax)} ${socket.error ?? socket.state}`,
      ...(left > 0 ? [`  … ${left} earlier frames`] : []),
      ...frames.map(
        ({ direction, payload }) =>
          `  ${direction === "sent" ? ">" : "<"} ${short(payload, payloadCharsMax)}`,
      ),
    ];
  });
}

export interface RequestFilter {
  /** Kinds (fetch, script) and outcomes (404, 4xx, failed, pending); all of them have to hold. */
  words: string[];
  url: string;
  /** Also those of other pages, and of documents that the page has left. */
  all: boolean;
}

function isMeant(entry: NetworkEntry, word: string): boolean {
  if (entry.resource_type === word || entry.state === word) return true;
  if (/^\d(\d\d|xx)$/.test(word)) return String(entry.status ?? "").startsWith(word.replace("xx", ""));
  return false;
}

export function requestsOf(browser: Browser, { words, url, all }: RequestFilter): NetworkEntry[] {
  const page = browser.pages.get(browser.activeId ?? "");
  return browser.network.entries.filter(
    (entry) =>
      (all || (entry.page_id === page?.id && entry.document === page.documents)) &&
      entry.url.includes(url) &&
      words.every((word) => isMeant(entry, word)),
  );
}

const knownWord =
  /^(\d(\d\d|xx)|failed|pending|done|document|stylesheet|image|media|font|script|xhr|fetch|eventsource|websocket|other)$/;

/** A filter as a model writes it: "fetch 4xx", "/api/ failed", "all". What is neither kind nor outcome is of the address. */
export function readFilter(text: string): RequestFilter {
  const given = text.trim().split(/\s+/).filter(Boolean);
  const words = given.filter((word) => knownWord.test(word.toLowerCase())).map((word) => word.toLowerCase());
  const url = given.find((word) => word !== "all" && !knownWord.test(word.toLowerCase())) ?? "";
  return { words, url, all: given.includes("all") };
}

const headerLines = (title: string, headers: Record<string, string>) => [
  `${title}:`,
  ...Object.entries(headers).map(([name, value]) => `  ${name}: ${short(value, urlCharsMax)}`),
];

/** All of one request, its bodies within this many characters each. */
export async function requestDetails(
  browser: Browser,
  id: string,
  { charsMax, timeoutMs }: { charsMax: number; timeoutMs: number },
): Promise<string[]> {
  const entry = browser.network.entry(id);
  const cut = (text: string) =>
    text.length > charsMax ? `${text.slice(0, charsMax)}… [+${text.length - charsMax} characters]` : text;
  const answer = await browser.network.body(id, timeoutMs).catch((error: Error) => error.message);
  const body =
    typeof answer === "string"
      ? answer
      : answer.base64
        ? `${Math.floor((answer.body.length * 3) / 4)} bytes, not text`
        : cut(answer.body);
  return [
    ...networkLines([entry]),
    `began by: ${entry.initiator}`,
    ...(entry.waited_ms === null
      ? []
      : [`first byte after ${entry.waited_ms} ms, ${entry.bytes} bytes in all`]),
    ...(entry.redirected_to ? [`redirected to ${entry.redirected_to}`] : []),
    ...headerLines("request headers", entry.request_headers),
    ...(entry.post_data === null ? [] : ["request body:", cut(entry.post_data)]),
    ...headerLines("response headers", entry.response_headers),
    "response body:",
    body,
  ];
}
