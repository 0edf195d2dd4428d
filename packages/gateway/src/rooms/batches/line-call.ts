import type { Reply } from "@model-gateway/wire/http";
import type { Principal } from "../../kernel/context.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { Inference, LineCall } from "../inference/index.ts";
import type { Admission, AdmitOptions, FinalUsage, TokenBound } from "../metering/index.ts";

/** What a line is charged for. */
export interface Owed {
  model: string;
  isOwn: boolean;
  usage: FinalUsage;
}

/** Of a line that is being sent: what is owed for it at most, and how fast that grows. */
export interface Sending extends Owed {
  sentAtMs: number;
  tokensPerSecond: number;
}

export function sendingOf({ model, isOwn = false, bound }: AdmitOptions, rates: FinalUsage["rates"]): Owed {
  const { promptTokens, outputTokensMax: completionTokens, tools } = bound as TokenBound;
  const usage = { promptTokens, completionTokens, toolsUsd: tools?.mostUsd, isBatch: true, rates };
  return { model, isOwn, usage: { ...usage, backend: "gateway", estimated: true } };
}

/** What is owed for a line of which no more is heard: all that its model can have written by now. */
export function owedSince({ sentAtMs, tokensPerSecond, usage, ...rest }: Sending, nowMs: number): Owed {
  const written = Math.ceil(((nowMs - sentAtMs) / 1_000) * tokensPerSecond);
  // A clock that was set back says nothing of how long that was.
  const completionTokens =
    nowMs < sentAtMs ? usage.completionTokens : Math.min(usage.completionTokens, written);
  return { ...rest, usage: { ...usage, completionTokens } };
}

/** A line's request id is always the same, so that it is charged once. Not one that tells the time. */
export function lineRequestId(batchId: string, line: number): string {
  const hex = sha256Hex(`${batchId} ${line}`);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

interface LineOptions {
  batchId: string;
  line: number;
  endpoint: string;
  body: string;
  principal: Principal;
  inference: Pick<Inference, "line">;
  /** Nothing is sent: `admit` refuses it. */
  isDry?: boolean;
  /** Refuses what may cost too much on the backend that was chosen, or comes too soon. */
  admit(options: AdmitOptions): void | Promise<void>;
}

/** A line on its way through the pipeline of every request; its batch holds what it may cost. */
export class LineRun {
  readonly requestId: string;
  readonly line: number;
  owed: Owed | null = null;
  isSent = false;
  /** Of a line for a vendor, what stands in its row while it is sent. */
  mark: string | null = null;
  readonly #gone = new AbortController();
  readonly #options: LineOptions;
  readonly background: LineCall["line"]["background"];

  constructor(options: LineOptions) {
    this.#options = options;
    this.line = options.line;
    this.requestId = lineRequestId(options.batchId, options.line);
    this.background = { isDry: options.isDry, isStopped: false, stop: () => this.stop() };
  }

  get isStopped(): boolean {
    return this.background.isStopped;
  }

  stop(): void {
    this.background.isStopped = true;
    this.#gone.abort();
  }

  answer(): Promise<Reply> {
    const { requestId, background } = this;
    const { inference, endpoint, batchId, principal, body } = this.#options;
    const { signal } = this.#gone;
    return inference.line(endpoint, {
      request: {
        header: (name) => (name === "x-service-ref" ? batchId : null),
        headersLike: () => ({}),
        signal,
        whenGone: (run) => signal.addEventListener("abort", run, { once: true }),
      },
      ...{ requestId, principal, record: null, body: Buffer.from(body) },
      line: { background, metering: { admit: (options) => this.#admit(options), written() {} } },
    });
  }

  async #admit(options: AdmitOptions): Promise<Admission> {
    await this.#options.admit(options);
    const { model, isOwn = false, bound } = options;
    return {
      outputTokensHeld: "outputTokensMax" in bound ? bound.outputTokensMax : 0,
      lowered: false,
      grow: async () => true,
      sent: () => {
        this.isSent = true;
      },
      writtenTokens: () => 0,
      givenUp() {},
      settle: (usage) => {
        this.owed = { model, isOwn, usage: { ...usage, isBatch: true } };
        return null;
      },
      release() {},
    };
  }
}

const bytesOf = (body: Reply["body"]): Buffer =>
  Array.isArray(body) ? Buffer.concat(body) : Buffer.from(body as string | Uint8Array<ArrayBuffer>);

/** Line ends cannot stand in the strings of JSON, so only its layout changes. */
function onOneLine(text: string): string {
  try {
    JSON.parse(text);
    return text.replace(/\s*[\r\n]+\s*/g, " ").trim();
  } catch {
    return JSON.stringify(text);
  }
}

/** A line of the output. */
export function outputLine(customId: string, requestId: string, { head, body }: Reply): string {
  const json = onOneLine(bytesOf(body).toString());
  return `{"id":"batch_req_${requestId}","custom_id":${customId},"response":{"status_code":${head.status},"request_id":"${requestId}","body":${json}},"error":null}`;
}
