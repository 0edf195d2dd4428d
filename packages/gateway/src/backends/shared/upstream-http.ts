import { ANSWER_LINGER_MS, answerTooLarge } from "@model-gateway/wire/client";
import { isObject, jsonIn } from "../../kernel/json.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import {
  type Answer,
  type BackendDeps,
  BackendError,
  type Flow,
  type HttpAnswer,
  type Overflow,
  type PieceReader,
  type UpstreamRefusal,
} from "../contract.ts";

const ERROR_BODY_BYTES_MAX = 64 * 1024;
/** Short, because the client is waiting for the error. */
const ERROR_BODY_WAIT_MS = 2_000;
const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
const RETRY_AFTER_SECONDS_MAX = 86_400;

/** Errors before anything of the request was sent, with the message for operators. */
const NOT_SENT: ReadonlyMap<string, string> = new Map([
  ["ECONNREFUSED", "connection refused; nothing listens at this address"],
  ["ConnectionRefused", "connection refused; nothing listens at this address"],
  ["ENOTFOUND", "the name of the host is not known"],
  ["EAI_AGAIN", "the name of the host cannot be looked up just now"],
  ["EHOSTUNREACH", "there is no way to the host"],
  ["ENETUNREACH", "there is no way to the host's network"],
  ["FailedToOpenSocket", "the connection could not be opened"],
]);

interface UpstreamRequest {
  url: string;
  headers: Record<string, string>;
  signal: AbortSignal;
  /** Headers of a refusal for the client; set if refusals are passed on unchanged. */
  answerHeaders?: RegExp;
  body?: Uint8Array<ArrayBuffer> | string | Blob;
}

/** Sends one request and returns its 2xx answer; everything else is a BackendError, or the signal's reason. */
export async function fetchUpstream(
  fetchIt: BackendDeps["fetch"],
  { url, headers, signal, body, answerHeaders }: UpstreamRequest,
): Promise<Response> {
  let response: Response;
  try {
    response = await fetchIt(url, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body,
      signal,
      // A redirect could carry the key to another host.
      redirect: "manual",
      // Deadlines are the caller's, through the signal.
      timeout: false,
    });
  } catch (error) {
    throw transportError(error, signal);
  }
  if (response.ok) return response;
  throw await upstreamError(response, answerHeaders);
}

export async function readJson(response: Response, signal: AbortSignal): Promise<unknown> {
  const whole = await wholeBody(response, ANSWER_BYTES_MAX).catch((error) => {
    throw transportError(error, signal);
  });
  if (!whole) throw tooLarge(ANSWER_BYTES_MAX);
  try {
    return JSON.parse(whole.toString());
  } catch {
    throw new BackendError("transport", "the upstream answered something that is not JSON");
  }
}

export function transportError(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof BackendError) return error;
  const { code, message } = error as { code?: string; message?: string };
  const unsent = NOT_SENT.get(code ?? "");
  if (unsent !== undefined) return new BackendError("connect", `${unsent} (${code})`);
  // The runtime's message may contain the address, which clients must not see.
  return new BackendError("transport", message?.replace(/ fetching ".*/s, "") ?? "");
}

/** Reads the start of a non-2xx answer's body for its error. */
export async function upstreamError(
  answer: HttpAnswer | Response,
  answerHeaders?: RegExp,
): Promise<BackendError> {
  const isResponse = answer instanceof Response;
  const read = isResponse ? new ResponseAnswer(answer, NEVER) : answer;
  const text = await startOf(read);
  const body = jsonIn(text);
  const detail = errorDetail(body, text) || answer.statusText || "no detail";
  const retryAfter = isResponse ? answer.headers.get("retry-after") : answer.retryAfter;
  // Google's code for an unknown key.
  const status = text.includes('"API_KEY_INVALID"') ? 401 : answer.status;
  const error = new BackendError(
    "upstream",
    detail,
    status,
    retryAfterSeconds(retryAfter),
    refusalOf(status, detail, body),
  );
  if (answerHeaders && isObject(body)) {
    const headers = read.headersLike?.(answerHeaders) ?? {};
    error.answer = { body: hideSecrets(text), contentType: read.contentType, headers };
  }
  return error;
}

const NEVER = new AbortController().signal;

function startOf(answer: Answer): Promise<string> {
  return new Promise((resolve) => {
    const pieces: Uint8Array[] = [];
    let size = 0;
    const done = () => {
      clearTimeout(patience);
      resolve(Buffer.concat(pieces).subarray(0, ERROR_BODY_BYTES_MAX).toString());
    };
    const enough = () => {
      flow.cancel();
      done();
    };
    const patience = setTimeout(enough, ERROR_BODY_WAIT_MS);
    const flow = answer.pipe({
      piece(bytes) {
        if (size >= ERROR_BODY_BYTES_MAX) return;
        pieces.push(bytes);
        size += bytes.length;
        if (size >= ERROR_BODY_BYTES_MAX) enough();
      },
      flush() {},
      end: done,
      failed: done,
    });
    flow.resume();
  });
}

/** The message in an error body: `{error: "…"}`, `{error: {message}}`, flat `{message}`, or the text itself. */
function errorDetail(body: unknown, text: string): string {
  if (!isObject(body)) return text.trim();
  const { error, message, detail } = body;
  const found = isObject(error) ? error.message : (error ?? message ?? detail);
  return typeof found === "string" ? found : text.trim();
}

function retryAfterSeconds(header: string | null): number | undefined {
  if (header === null) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / 1000;
  if (!Number.isFinite(seconds) || seconds < 0) return undefined;
  return Math.min(Math.ceil(seconds), RETRY_AFTER_SECONDS_MAX);
}

const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
const count = (value: unknown): number | null =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;

const OVERFLOW_STATUS: readonly number[] = [400, 413, 422];
const OVERFLOW_NAMES: readonly string[] = ["context_length_exceeded", "exceed_context_size_error"];
const OVERFLOW_WORDS =
  /context (?:length|size|window)|maximum model length|prompt is too long|tokens? .{0,40}exceeds? .{0,40}(?:maximum|limit)/i;

/** How servers report the sizes of prompt and context; the numbers are the groups of the expression. */
const FIGURES: readonly { words: RegExp; prompt: number; context: number }[] = [
  { words: /request \((\d+) tokens\) exceeds the available context size \((\d+)/, prompt: 1, context: 2 },
  { words: /input \((\d+) tokens\) is longer than .{0,60}?\((\d+) tokens\)/, prompt: 1, context: 2 },
  { words: /token count \((\d+)\) exceeds the maximum .{0,40}?\((\d+)\)/, prompt: 1, context: 2 },
  { words: /prompt is too long: (\d+) tokens > (\d+)/, prompt: 1, context: 2 },
  { words: /length (\d+)\) is longer than the maximum model length of (\d+)/, prompt: 1, context: 2 },
  { words: /maximum context length is (\d+) tokens.{0,80}?(\d+) (?:input )?tokens/s, prompt: 2, context: 1 },
];

/** `body` is the parsed error body: `{error: {…}}` or the members themselves. */
function refusalOf(status: number, detail: string, body: unknown): UpstreamRefusal {
  const members = isObject(body) ? (isObject(body.error) ? body.error : body) : {};
  const type = text(members.type);
  const code = text(members.code);
  const isOverflow =
    OVERFLOW_STATUS.includes(status) &&
    ([type, code].some((name) => name !== null && OVERFLOW_NAMES.includes(name)) ||
      OVERFLOW_WORDS.test(detail));
  return { type, code, param: text(members.param), overflow: isOverflow ? figuresOf(members, detail) : null };
}

function figuresOf(members: Record<string, unknown>, detail: string): Overflow {
  const promptTokens = count(members.n_prompt_tokens);
  const contextTokens = count(members.n_ctx);
  if (promptTokens !== null || contextTokens !== null) return { promptTokens, contextTokens };
  for (const { words, prompt, context } of FIGURES) {
    const found = words.exec(detail);
    if (found) return { promptTokens: Number(found[prompt]), contextTokens: Number(found[context]) };
  }
  return { promptTokens: null, contextTokens: null };
}

/** A whole body, or null when it is larger than `bytesMax`. */
export async function wholeBody(response: Response, bytesMax: number): Promise<Buffer | null> {
  if (Number(response.headers.get("content-length")) > bytesMax) {
    void response.body?.cancel();
    return null;
  }
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += piece.length;
    if (size > bytesMax) return null;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

const tooLarge = (bytesMax: number) => new BackendError("too_large", answerTooLarge(bytesMax));

export class ResponseAnswer implements Answer, Flow {
  #reader: PieceReader | null = null;
  #body: ReadableStreamDefaultReader<Uint8Array> | null = null;
  #isPumping = false;
  #resumed: PromiseWithResolvers<void> | null = null;
  #lingering: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly response: Response,
    readonly signal: AbortSignal,
  ) {}

  get contentType(): string {
    return this.response.headers.get("content-type") ?? "";
  }

  headersLike(names: RegExp): Record<string, string> {
    return Object.fromEntries([...this.response.headers].filter(([name]) => names.test(name)));
  }

  async bytes(bytesMax: number): Promise<Buffer> {
    const { response } = this;
    const declared = Number(response.headers.get("content-length") ?? Number.NaN);
    try {
      if (declared <= bytesMax) return Buffer.from(await response.arrayBuffer());
      const whole = await wholeBody(response, bytesMax);
      if (!whole) throw tooLarge(bytesMax);
      return whole;
    } catch (error) {
      throw this.#reason(error);
    }
  }

  #reason(error: unknown): unknown {
    if (this.signal.aborted) return this.signal.reason;
    if (error instanceof BackendError) return error;
    return new BackendError("transport", `the upstream broke off its answer: ${(error as Error).message}`);
  }

  pipe(reader: PieceReader): Flow {
    this.#reader = reader;
    this.#body = (this.response.body ?? new Blob([]).stream()).getReader();
    return this;
  }

  pause(): void {
    this.#resumed ??= Promise.withResolvers();
  }

  resume(): void {
    this.#resumed?.resolve();
    this.#resumed = null;
    if (this.#isPumping) return;
    this.#isPumping = true;
    void this.#pump();
  }

  async #pump(): Promise<void> {
    try {
      for (;;) {
        if (this.#resumed) await this.#resumed.promise;
        const { done, value } = await this.#body!.read();
        if (done) return this.#reader?.end();
        this.#reader?.piece(value);
        this.#reader?.flush();
      }
    } catch (error) {
      this.#reader?.failed(this.#reason(error));
    } finally {
      clearTimeout(this.#lingering);
    }
  }

  leave(): void {
    this.#reader = null;
    this.#lingering = setTimeout(() => this.cancel(), ANSWER_LINGER_MS);
    this.resume();
  }

  cancel(): void {
    this.#reader = null;
    void this.#body?.cancel().catch(() => {});
  }
}

export const jsonAnswer = (body: object, signal: AbortSignal): Answer =>
  new ResponseAnswer(Response.json(body), signal);

export const eventAnswer = (body: ReadableStream<Uint8Array>, signal: AbortSignal): Answer =>
  new ResponseAnswer(
    new Response(body, { headers: { "content-type": "text/event-stream; charset=utf-8" } }),
    signal,
  );
