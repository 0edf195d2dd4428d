/** Requests of every page, frame and worker, and the frames of their WebSockets. */
import { z } from "zod";
import type { CdpSession, EventParams } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import { Ring } from "./ring.ts";

const headers = z.record(z.string(), z.string());
export const RequestEntry = z.object({
  id: z.string(),
  page_id: z.string(),
  url: z.string(),
  method: z.string(),
  resource_type: z.string(),
  state: z.enum(["pending", "done", "failed"]),
  status: z.number().nullable(),
  mime_type: z.string().nullable(),
  error: z.string().nullable(),
  request_headers: headers,
  response_headers: headers,
  post_data: z.string().nullable(),
  bytes: z.number(),
  started_ms: z.number(),
  duration_ms: z.number().nullable(),
  redirected_to: z.string().nullable(),
  initiator: z.string().describe("What made the page ask for it"),
  waited_ms: z.number().nullable().describe("Until the first byte of the answer"),
});
/** `document` counts the page's documents, so that requests of the current one can be selected. */
export type NetworkEntry = z.output<typeof RequestEntry> & { document: number };

const SocketFrame = z.object({
  direction: z.enum(["sent", "received"]),
  opcode: z.number().describe("1 text, 2 binary (base64)"),
  payload: z.string(),
  truncated: z.boolean(),
  time_ms: z.number(),
});

export const SocketEntry = z.object({
  id: z.string(),
  page_id: z.string(),
  url: z.string(),
  state: z.enum(["open", "closed"]),
  error: z.string().nullable(),
  frames: z.array(SocketFrame),
  frames_dropped: z.number(),
});
export type SocketEntry = z.output<typeof SocketEntry>;

const entriesMax = 1_000;
const socketsMax = 100;
const originsMax = 200;
const framesPerSocketMax = 500;
const payloadCharsMax = 4_000;
const headerCharsMax = 1_000;
/** What the browser itself keeps of bodies, so that a long session does not grow it. */
const bodyBufferBytes = { maxTotalBufferSize: 32 * 1024 * 1024, maxResourceBufferSize: 8 * 1024 * 1024 };

function trimHeaders(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, String(value).slice(0, headerCharsMax)]),
  );
}

function initiatorOf(initiator: EventParams<"Network.requestWillBeSent">["initiator"] | undefined): string {
  const at = initiator?.stack?.callFrames[0] ?? initiator?.stack?.parent?.callFrames[0];
  if (at) return `${at.functionName || "script"} @ ${at.url}:${at.lineNumber + 1}`.slice(0, headerCharsMax);
  return initiator?.url
    ? `${initiator.type} ${initiator.url}`.slice(0, headerCharsMax)
    : (initiator?.type ?? "other");
}

interface Kept {
  entry: NetworkEntry;
  session: CdpSession;
  requestId: string;
  startedAt: number;
}

export class NetworkCapture {
  readonly #kept = new Ring<Kept>(entriesMax);
  readonly #open = new Map<string, Kept>();
  readonly #sockets = new Ring<SocketEntry>(socketsMax);
  #nextId = 1;
  /** Whose documents were opened. */
  readonly origins = new Set<string>();
  readonly #explain: (url: string, error: string) => string;

  constructor(explain: (url: string, error: string) => string) {
    this.#explain = explain;
  }

  get entries(): NetworkEntry[] {
    return this.#kept.items.map(({ entry }) => entry);
  }

  isAsking(host: string): boolean {
    return this.#open.values().some(({ entry }) => URL.parse(entry.url)?.hostname === host);
  }

  get dropped(): number {
    return this.#kept.dropped;
  }

  get sockets(): readonly SocketEntry[] {
    return this.#sockets.items;
  }

  attach(session: CdpSession, page: { id: string; documents: number }): void {
    const key = (requestId: string) => `${session.id}:${requestId}`;
    session.on("Network.requestWillBeSent", (event) => {
      // The browser's own pages, such as the viewer of PDFs, are not the page's.
      if (/^(chrome|chrome-extension|devtools|edge):/.test(event.request.url)) return;
      if (event.redirectResponse) this.#redirected(key(event.requestId), event);
      this.#begin(session, page, event);
    });
    session.on("Network.responseReceived", ({ requestId, response }) => {
      const entry = this.#open.get(key(requestId))?.entry;
      if (!entry) return;
      entry.status = response.status;
      entry.mime_type = response.mimeType;
      entry.response_headers = trimHeaders(response.headers as Record<string, string>);
      const waitedMs = response.timing?.receiveHeadersEnd ?? null;
      entry.waited_ms = waitedMs === null ? null : Math.max(0, Math.round(waitedMs));
    });
    session.on("Network.loadingFinished", ({ requestId, encodedDataLength, timestamp }) =>
      this.#end(key(requestId), { bytes: encodedDataLength, timestamp }),
    );
    session.on("Network.loadingFailed", ({ requestId, errorText, timestamp, blockedReason }) =>
      this.#end(key(requestId), {
        error: blockedReason ? `${errorText} (${blockedReason})` : errorText,
        timestamp,
      }),
    );
    this.#attachSockets(session, page);
    session.tell("Network.enable", bodyBufferBytes);
  }

  #begin(
    session: CdpSession,
    page: { id: string; documents: number },
    event: EventParams<"Network.requestWillBeSent">,
  ): void {
    const { request, requestId, type, timestamp, wallTime, initiator } = event;
    // The document that a navigation asks for is the next one.
    const isNext = type === "Document" && event.loaderId === requestId;
    const { protocol, origin } = new URL(request.url);
    if (type === "Document" && /^https?:$/.test(protocol) && this.origins.size < originsMax)
      this.origins.add(origin);
    const kept: Kept = {
      session,
      requestId,
      startedAt: timestamp,
      entry: {
        id: `r${this.#nextId++}`,
        page_id: page.id,
        url: request.url.slice(0, payloadCharsMax),
        method: request.method,
        resource_type: (type ?? "Other").toLowerCase(),
        state: "pending",
        status: null,
        mime_type: null,
        error: null,
        request_headers: trimHeaders(request.headers as Record<string, string>),
        response_headers: {},
        post_data: request.postData?.slice(0, payloadCharsMax) ?? null,
        bytes: 0,
        started_ms: Math.round(wallTime * 1_000),
        duration_ms: null,
        redirected_to: null,
        initiator: initiatorOf(initiator),
        waited_ms: null,
        document: page.documents + (isNext ? 1 : 0),
      },
    };
    this.#open.set(`${session.id}:${requestId}`, kept);
    const forgotten = this.#kept.push(kept);
    if (forgotten) this.#open.delete(`${forgotten.session.id}:${forgotten.requestId}`);
  }

  #redirected(
    key: string,
    { request, redirectResponse, timestamp }: EventParams<"Network.requestWillBeSent">,
  ): void {
    const entry = this.#open.get(key)?.entry;
    if (!entry || !redirectResponse) return;
    entry.status = redirectResponse.status;
    entry.response_headers = trimHeaders(redirectResponse.headers as Record<string, string>);
    entry.redirected_to = request.url.slice(0, payloadCharsMax);
    this.#end(key, { timestamp });
  }

  #end(
    key: string,
    { error, bytes, timestamp }: { error?: string; bytes?: number; timestamp: number },
  ): void {
    const kept = this.#open.get(key);
    if (!kept) return;
    this.#open.delete(key);
    kept.entry.state = error ? "failed" : "done";
    kept.entry.error = error === undefined ? null : this.#explain(kept.entry.url, error);
    kept.entry.bytes = bytes ?? 0;
    kept.entry.duration_ms = Math.max(0, Math.round((timestamp - kept.startedAt) * 1_000));
  }

  #attachSockets(session: CdpSession, page: { id: string }): void {
    const byRequest = new Map<string, SocketEntry>();
    session.on("Network.webSocketCreated", ({ requestId, url }) => {
      const entry: SocketEntry = {
        id: `w${this.#nextId++}`,
        page_id: page.id,
        url,
        state: "open",
        error: null,
        frames: [],
        frames_dropped: 0,
      };
      byRequest.set(requestId, entry);
      this.#sockets.push(entry);
    });
    const frame = (direction: "sent" | "received") => {
      return ({ requestId, response }: EventParams<"Network.webSocketFrameSent">) => {
        const entry = byRequest.get(requestId);
        if (!entry) return;
        const { payloadData: payload, opcode } = response;
        entry.frames.push({
          direction,
          opcode,
          payload: payload.slice(0, payloadCharsMax),
          truncated: payload.length > payloadCharsMax,
          time_ms: Date.now(),
        });
        if (entry.frames.length > framesPerSocketMax) {
          entry.frames.shift();
          entry.frames_dropped++;
        }
      };
    };
    session.on("Network.webSocketFrameSent", frame("sent"));
    session.on("Network.webSocketFrameReceived", frame("received"));
    session.on("Network.webSocketFrameError", ({ requestId, errorMessage }) => {
      const entry = byRequest.get(requestId);
      if (entry) entry.error = errorMessage;
    });
    session.on("Network.webSocketClosed", ({ requestId }) => {
      const entry = byRequest.get(requestId);
      if (entry) entry.state = "closed";
      byRequest.delete(requestId);
    });
  }

  #find(id: string): Kept {
    const kept = this.#kept.items.find(({ entry }) => entry.id === id);
    if (!kept)
      throw new ToolError(
        "not_found",
        `No request "${id}" in the capture. The list of requests names those that are kept.`,
      );
    return kept;
  }

  entry(id: string): NetworkEntry {
    return this.#find(id).entry;
  }

  async body(id: string, timeoutMs: number): Promise<{ body: string; base64: boolean }> {
    const kept = this.#find(id);
    try {
      const { body, base64Encoded } = await kept.session.send(
        "Network.getResponseBody",
        { requestId: kept.requestId },
        timeoutMs,
      );
      return { body, base64: base64Encoded };
    } catch (error) {
      throw new ToolError(
        "not_found",
        `The body of ${id} is no longer kept by the browser (${(error as Error).message}). Bodies go with their page.`,
      );
    }
  }
}
