import type { Reply } from "@model-gateway/wire/http";
import type { Principal } from "../../kernel/context.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { jsonIn } from "../../kernel/json.ts";
import type { Inference, LineCall } from "../inference/index.ts";
import type { Admission, AdmitOptions, FinalUsage, TokenBound } from "../metering/index.ts";

/** What a line is charged for. */
export interface Owed {
  model: string;
  isOwn: boolean;
  usage: FinalUsage;
}

/** A line that is being sent: the most that it can cost, and how fast its cost grows. */
export interface Sending extends Owed {
  sentAtMs: number;
  tokensPerSecond: number;
}

export function sendingOf({ model, isOwn = false, bound }: AdmitOptions, rates: FinalUsage["rates"]): Owed {
  const { promptTokens, outputTokensMax: completionTokens, tools } = bound as TokenBound;
  const usage = { promptTokens, completionTokens, toolsUsd: tools?.mostUsd, isBatch: true, rates };
  return { model, isOwn, usage: { ...usage, backend: "gateway", estimated: true } };
}

/** The charge for a line that got no answer: everything that its model can have written by now. */
export function owedSince({ sentAtMs, tokensPerSecond, usage, ...rest }: Sending, nowMs: number): Owed {
  const written = Math.ceil(((nowMs - sentAtMs) / 1_000) * tokensPerSecond);
  // If the clock was set back, the duration is unknown.
  const completionTokens =
    nowMs < sentAtMs ? usage.completionTokens : Math.min(usage.completionTokens, written);
  return { ...rest, usage: { ...usage, completionTokens } };
}

/** Always the same for a line, so that it is charged once. A UUID of version 8, which has no time in it. */
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
  /** Nothing is sent, because `admit` refuses it. */
  isDry?: boolean;
  /** Refuses a line that may cost too much on the chosen backend, or comes too soon. */
  admit(options: AdmitOptions): void | Promise<void>;
}

/** A line in the pipeline of all requests. It needs no hold of its own, because its batch has one. */
export class LineRun {
  readonly requestId: string;
  readonly line: number;
  owed: Owed | null = null;
  isSent = false;
  /** For a vendor, what is in the line's row while it is sent. */
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

/** JSON strings cannot contain newlines, so only the layout changes. */
const onOneLine = (text: string): string =>
  jsonIn(text) === undefined ? JSON.stringify(text) : text.replace(/\s*[\r\n]+\s*/g, " ").trim();

/** A line of the output. */
export function outputLine(customId: string, requestId: string, { head, body }: Reply): string {
  const json = onOneLine(bytesOf(body).toString());
  return `{"id":"batch_req_${requestId}","custom_id":${customId},"response":{"status_code":${head.status},"request_id":"${requestId}","body":${json}},"error":null}`;
}
