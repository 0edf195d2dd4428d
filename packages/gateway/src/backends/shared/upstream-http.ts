import { isObject, jsonIn } from "../../kernel/json.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import {
  type Answer,
  type BackendDeps,
  BackendError,
  type HttpAnswer,
  type Overflow,
  type UpstreamRefusal,
} from "../contract.ts";
import { ResponseAnswer, tooLarge } from "./response-answer.ts";

/** How much of an upstream's error body is read. */
const ERROR_BODY_BYTES_MAX = 64 * 1024;
/** How long that may take: the client is waiting for an error. */
const ERROR_BODY_WAIT_MS = 2_000;
const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
const RETRY_AFTER_SECONDS_MAX = 86_400;

/** Codes of failures in which no byte of the request left this machine, and what they say to an operator. */
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
  /** Headers of a refusal that are for the client: set where refusals pass as they are. */
  answerHeaders?: RegExp;
  /** Sent by POST; absent: GET. */
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
  // The runtime's words may name the address, which is the operator's.
  return new BackendError("transport", message?.replace(/ fetching ".*/s, "") ?? "");
}

/** The error that a non-2xx answer stands for; reads a bounded part of its body. */
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
  // Google's word for a key that it does not know.
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

/** The beginning of an error's body, as far as it arrives in time: the status alone is enough to fail the call. */
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

/** How servers write the figures: of the prompt and of the context, in either order. */
const FIGURES: readonly { words: RegExp; prompt: number; context: number }[] = [
  { words: /request \((\d+) tokens\) exceeds the available context size \((\d+)/, prompt: 1, context: 2 },
  { words: /input \((\d+) tokens\) is longer than .{0,60}?\((\d+) tokens\)/, prompt: 1, context: 2 },
  { words: /token count \((\d+)\) exceeds the maximum .{0,40}?\((\d+)\)/, prompt: 1, context: 2 },
  { words: /prompt is too long: (\d+) tokens > (\d+)/, prompt: 1, context: 2 },
  { words: /length (\d+)\) is longer than the maximum model length of (\d+)/, prompt: 1, context: 2 },
  { words: /maximum context length is (\d+) tokens.{0,80}?(\d+) (?:input )?tokens/s, prompt: 2, context: 1 },
];

/** What a non-2xx answer says besides its message. `body` is the parsed error body: `{error: {…}}` or the members themselves. */
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
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += piece.length;
    if (size > bytesMax) return null;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
