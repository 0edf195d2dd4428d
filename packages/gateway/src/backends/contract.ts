/**
 * What a model-serving upstream looks like inside the gateway. A backend has the capabilities
 * that it declares; what is absent is unsupported, so there are no stubs.
 *
 * Chat and embeddings speak the chat-completions convention in both directions, whatever the upstream
 * speaks: a kind with another wire format converts at its own edge, so everything above relays bytes.
 */

import type { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import type { Answer, FailureKind, Origin, OriginOptions } from "@model-gateway/wire/client";
import type { SessionOf } from "../kernel/affinity.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import { hideSecrets } from "../kernel/secrets.ts";

export type { Answer, Flow, HttpAnswer, PieceReader } from "@model-gateway/wire/client";

/** Work that is posted to a path of the chat-completions convention and passes as it is. */
export const POSTED_CAPABILITIES = ["images", "speech", "transcription", "rerank", "moderation"] as const;
export type PostedCapability = (typeof POSTED_CAPABILITIES)[number];

export const CAPABILITIES = [
  "chat",
  "embeddings",
  "video",
  "realtime",
  "invoke",
  ...POSTED_CAPABILITIES,
] as const;
export type CapabilityName = (typeof CAPABILITIES)[number];
export interface VideoResult {
  /** Empty: the clip stays with the upstream, and `content` fetches it. */
  url: string;
  mime_type: string;
  width?: number;
  height?: number;
  duration_seconds?: number;
  expires_at?: string;
}

export type HealthState = "Healthy" | "Degraded" | "Unhealthy";

/** Chat APIs of vendors in which an upstream can be spoken to. */
export const DIALECTS = ["chat", "responses", "messages", "gemini"] as const;
export type DialectName = (typeof DIALECTS)[number];

/** How a key is sent: as a bearer, or in the header of this name. */
export const AUTHS = ["bearer", "x-api-key", "x-goog-api-key", "api-key"] as const;
export type AuthName = (typeof AUTHS)[number];

export const CHAT_LIMIT_FIELDS = ["max_tokens", "max_completion_tokens"] as const;

/** How a server is spoken to where that is not as usual. */
export interface BackendManner {
  auth?: AuthName;
  limit_field?: (typeof CHAT_LIMIT_FIELDS)[number];
  /** What the server wants before every model id, which clients leave out. */
  id_prefix?: string;
}

/** What an operator sets for a backend besides. */
export interface BackendSettings extends BackendManner {
  /** Sent with every request; as secret as the key. */
  headers?: Readonly<Record<string, string>>;
  /** Fields of a request's body that are set, and those that are dropped. */
  set?: Readonly<Record<string, unknown>>;
  drop?: readonly string[];
  /** What it reports as its own cost is charged. */
  believe_cost?: boolean;
  /** Of work that is not text: fields that it may be sent besides the known ones. */
  fields?: readonly string[];
  /** Dollars for a call of each of the vendor's own tools; those that pay may use no others. */
  tool_prices?: Readonly<Record<string, number>>;
  /** Lines of batches may run on it. */
  batches?: boolean;
  /** Requests may name files, containers and caches in the operator's account with the vendor. */
  shared_files?: boolean;
}

export interface Trial {
  name: string;
  ok: boolean;
  detail: string;
}

/** What a first contact has shown of a server; it holds where the operator has not said otherwise. */
export interface Seen extends BackendManner {
  /** None: no chat was answered. */
  dialects: DialectName[];
  model: string | null;
  trials: Trial[];
  /** What the server reports to have read and written, which nobody is charged for. */
  prompt_tokens: number;
  completion_tokens: number;
  at: string;
}

/** A backend as it is registered and persisted. */
export interface BackendConfig extends BackendSettings {
  seen?: Seen;
  /** Row key and provider hint. */
  name: string;
  kind: string;
  /** The `type` that the operator gave: a kind or a planner name such as `vllm`. */
  type: string;
  /** Which of its kind's dialects, where the type names one. */
  dialect?: string;
  /** Chat APIs that its server speaks, the one for chats first; absent: by its host. */
  dialects?: readonly DialectName[];
  /** As registered; a bridge:// URL stays one here. */
  url: string;
  /** Several have spaces or commas between; a Google service account is the JSON of its key file. */
  apiKey: string | null;
  models: readonly string[];
  capabilities?: readonly CapabilityName[];
  /** Calls that it takes at once; absent: any number. */
  concurrency?: number;
  /** False: registered, and not used. Left out where nobody can switch it. */
  enabled?: boolean;
}

export interface ModelInfo {
  id: string;
  /** What its server says about it, such as the context length; small. */
  meta?: Record<string, unknown>;
  capabilities?: readonly CapabilityName[];
}

export interface ProbeResult {
  state: HealthState;
  /** What discovery found; empty where the kind has none. */
  models: readonly ModelInfo[];
  detail?: string;
}

/** A JSON request body that is passed on as bytes and parsed only by those who must look inside. */
export interface JsonBody {
  /** The complete payload: model id resolved, the gateway's own fields gone, `extra` merged. */
  bytes(): Uint8Array<ArrayBuffer> | string;
  object(): Record<string, unknown>;
  /** The client wants to see the model's thoughts, which some dialects have to be asked for. */
  readonly wantsThoughts?: boolean;
  /** The gateway made it of another API's request: nobody wrote it for chats. */
  readonly isMade?: boolean;
  /** Of a multipart form: what is sent instead of the bytes, with the call's content type. */
  form?(): Blob;
}

export interface ModelCall {
  model: string;
  body: JsonBody;
  requestId: string;
  /** Whose request it is: what is kept of an answer for later requests is for these only. Absent: nothing is kept. */
  scope?: string;
  /** The session that it belongs to: its prompt is in the cache of the node, or the key's account, that served it before. */
  session?: SessionOf;
  /** Aborts the upstream; fires when the client leaves or a deadline passes. Made when it is first asked for. */
  readonly signal: AbortSignal;
  /** Calls back once when that happens or has happened: a cheaper listener on `signal`. There can be only one. */
  whenAborted(run: (reason: unknown) => void): void;
  /** Told when it was aborted before anything was sent. */
  unsent?(): void;
}

export interface ChatCall extends ModelCall {
  stream: boolean;
}

export const ownChat = (
  body: Record<string, unknown>,
  signal: AbortSignal,
  model = String(body.model),
): NativeCall => ({
  model,
  body: { bytes: () => JSON.stringify(body), object: () => body },
  headers: {},
  requestId: "own",
  stream: body.stream === true,
  signal,
  whenAborted: (run) => whenAborted(signal, run),
});

export function whenAborted(signal: AbortSignal, run: (reason: unknown) => void): void {
  if (signal.aborted) run(signal.reason);
  else signal.addEventListener("abort", () => run(signal.reason), { once: true });
}

/** A request in one of the backend's dialects, as its client wrote it. */
export interface NativeCall extends ChatCall {
  /** Those of the client's that belong to the dialect. */
  headers: Readonly<Record<string, string>>;
}

/** Reads an answer in its own dialect on a copy, while its bytes pass. */
export interface NativeReader {
  /** The newest usage, as chat completions report it; null while there is none. */
  readonly usage: unknown;
  readonly isComplete: boolean;
  /** The usage is that of all of it, not of what had been written by then. */
  readonly isCounted: boolean;
  readonly isOver: boolean;
  /** The upstream's failure inside the stream, in its own words. */
  readonly failure: string | null;
  /** Takes an event of a stream; returns what the model wrote in it, in any form. */
  read(event: Record<string, unknown>): unknown;
  /** Takes a whole answer; returns what the model wrote. Throws when it is not one. */
  whole(answer: Record<string, unknown>): unknown;
  /** Events that end the stream here, like an answer that has reached its limit. */
  limited(usage: { promptTokens: number; completionTokens: number } | null): string;
  failed(message: string): string;
}

/** A request in a dialect, as far as it has to be looked at. */
export interface NativeBody {
  value(name: string): unknown;
  includes(text: string): boolean;
}

/** A dialect of a backend, for requests that come in it and answers that go back as they are. */
export interface NativeDialect {
  /** The field that limits an answer; `generationConfig.x` is inside `generationConfig`. */
  limitField: string;
  /** Headers of clients that belong to the dialect. */
  requestHeaders: RegExp;
  /** Headers of its answers that are for the client. */
  answerHeaders: RegExp;
  /** Fields to set, as JSON, where the history has thoughts that the vendor did not sign and would refuse. */
  mended(body: NativeBody, model: string): readonly (readonly [string, string])[];
  /** Resolves with a 2xx answer in the dialect. Throws BackendErrors, which have the upstream's own `answer`. */
  post(call: NativeCall): Promise<Answer>;
  reader(): NativeReader;
}

export interface PostCall extends ModelCall {
  /** Media type of the body; absent: JSON. */
  contentType?: string;
}

export interface VideoRequest {
  model: string;
  prompt: string;
  negativePrompt?: string;
  images: readonly { dataBase64: string; mimeType: string }[];
  durationSeconds?: number;
  width?: number;
  height?: number;
  /** Backend-specific overrides such as seed, steps, cfg. */
  extra: Record<string, unknown>;
}

export type VideoPoll =
  | { state: "pending"; progress?: number }
  | {
      state: "succeeded";
      result: VideoResult;
      /** What the upstream reports about the finished video, in its own fields. */
      made?: Record<string, unknown>;
    }
  | { state: "failed"; error: string };

/** What a task asks for, as it will be sent. Its price is read from this. */
export interface VideoAsked {
  /** Every field sent upstream that sets length, size or count, under the upstream's own names and at any depth. */
  members: Record<string, unknown>;
  /** Seconds of the video when no member names a duration. */
  defaultSeconds: number;
  /** Names that `extra` may have. */
  known: readonly string[];
  /** Fields of the request that the upstream has no place for. */
  unsent?: readonly string[];
}

export interface VideoCapability {
  /** What `submit` will ask for. Sends nothing. */
  asked(request: VideoRequest): VideoAsked;
  submit(request: VideoRequest, signal: AbortSignal): Promise<string>;
  /** Whether the server has this API, where that can be asked for nothing. */
  isServed?(signal: AbortSignal): Promise<boolean>;
  poll(taskId: string, signal: AbortSignal): Promise<VideoPoll>;
  /** The clip, where it stays with the upstream, or the range that is asked for; null: it is not there. */
  content?(taskId: string, range: string | null, signal: AbortSignal): Promise<Response | null>;
  cancel?(taskId: string, signal: AbortSignal): Promise<void>;
}

export interface RealtimeOpen {
  sessionId: string;
  model: string;
  config: Record<string, unknown>;
  onEvent(event: Record<string, unknown>): void;
  onClose(reason: string): void;
}

export interface RealtimeLink {
  /** False when the upstream does not keep up and its bounded buffer is full. */
  send(event: Record<string, unknown>): boolean;
  close(): void;
}

/** How the upstream counts what is not text. Where its models differ, the highest of them. */
export interface MediaRates {
  /** Samples a second of PCM16 unless a session's settings say otherwise. */
  inputAudioHz: number;
  outputAudioHz: number;
  inputAudioTokensPerSecond: number;
  outputAudioTokensPerSecond: number;
  /** Shorter audio counts as this long. */
  audioSecondsMin: number;
  tokensPerImage: number;
}

export interface RealtimeCapability {
  readonly rates: MediaRates;
  /** Settings that a session or a response may have. */
  readonly known: readonly string[];
  open(options: RealtimeOpen, signal: AbortSignal): Promise<RealtimeLink>;
}

/** A key that the server refused, by how it ends, and until when it is not used. */
export interface RefusedKey {
  endsWith: string;
  untilMs: number;
}

/** Fails with BackendErrors, or with the reason of the call's signal. */
export interface Backend {
  readonly config: BackendConfig;
  /** Resolves with a 2xx chat-completions answer: JSON, or SSE when `stream`. Otherwise throws BackendError. */
  chat?(call: ChatCall): Promise<Answer>;
  /** The dialects in which requests pass as they are, besides chats, which always do. */
  native?: ReadonlyMap<DialectName, NativeDialect>;
  /** As its kind declares them for this server. Absent: `max_tokens`. */
  limitFields?: LimitFields;
  readonly keys?: {
    refused(): RefusedKey[];
    /** What another process was refused. */
    setAside(refused: readonly RefusedKey[]): void;
    onRefused: (() => void) | null;
  };
  /** Its API has no `n`: a chat has one answer, however many it asks for. */
  writesOne?: boolean;
  /** The limit that it sets on a chat that names none; absent: none. */
  usualOutputTokens?(model: string): number;
  /** Resolves with a 2xx embeddings answer; honours `encoding_format`. */
  embed?(call: ModelCall): Promise<Answer>;
  /** Posts to another path of the same convention, such as `/completions`, and resolves with its 2xx answer. */
  post?(path: string, call: PostCall): Promise<Answer>;
  /** What else can be posted, as far as is known: a server may not have the path. Absent: nothing. */
  posts?: readonly PostedCapability[];
  video?: VideoCapability;
  /** Whether it makes videos is not known yet: it may be asked for one, and is not listed with those that do. */
  readonly mayMakeVideos?: boolean;
  realtime?: RealtimeCapability;
  /** Sends a method and params as they are and returns the raw result. */
  invoke?(method: string, params: Record<string, unknown> | undefined, signal: AbortSignal): Promise<unknown>;
  /** How far the model is loaded that a call waits for; null: it is loaded. */
  loadedPercent?(): number | null;
  /** Health and discovery in one; must never spend tokens. */
  probe(signal: AbortSignal): Promise<ProbeResult>;
  close(): void;
}

/** Fields that limit a chat's output, by model; `options.x` is inside `options`. The first is added if none is given. */
export type LimitFields = (model: string) => readonly string[];

const USUAL_LIMIT_FIELDS = ["max_tokens"] as const;

export const limitFieldsOf = (backend: Backend, model: string): readonly string[] =>
  backend.limitFields?.(model) ?? USUAL_LIMIT_FIELDS;

/** What every kind is handed; tests replace the network, time and randomness here. */
export interface BackendDeps {
  fetch: (url: string, init?: BunFetchRequestInit) => Promise<Response>;
  /** Connections to a plain-http server without `fetch`; null where only `fetch` knows the way. */
  openOrigin: ((options: OriginOptions) => Origin) | null;
  clock: Clock;
  ids: Ids;
  log: Log;
}

/** A backend kind, as its folder exports it: everything that others need to know about it. */
export interface BackendKind {
  kind: string;
  label: string;
  speaks: string;
  types: readonly NamedType[];
  /** Protocols of its URLs, such as `http:`. The first is spoken through a bridge tunnel. */
  schemes: readonly [string, ...string[]];
  /** The most that a backend of this kind can do. */
  capabilities: readonly CapabilityName[];
  /** Which lists its models come from; the first goes before the second. */
  modelSources: readonly ModelSource[];
  limitFields?(config: BackendConfig): LimitFields;
  /** The dialects that one may speak; absent: none of these, and there is nothing to try but its probe. */
  dialects?: readonly DialectName[];
  /** A backend of this kind may have several keys, and settings. */
  takesSettings?: true;
  /** Whether it runs on the operator's own hardware, where nobody is paid by the token. Absent: it does not. */
  isOwn?(config: Pick<BackendConfig, "type">): boolean;
  /** Of clips and voice sessions: the fields that pass, by whose they are. */
  known?: Readonly<Record<string, readonly string[]>>;
  fields: readonly FormField[];
  /** `config.url` is where it is reached; bridges are resolved before. */
  create(config: BackendConfig, deps: BackendDeps): Backend;
}

/** `static`: as registered; `discovered`: as its probe lists them. */
export type ModelSource = "static" | "discovered";

interface NamedType {
  name: string;
  dialect?: string;
  /** Set where the console's form offers it beside the kind itself. */
  label?: string;
  /** Set for a server that people run on their own machine: it is looked for at its usual port. */
  local?: { id: string; label: string; port: number };
}

/** A model server that people run on their own machine, at the port that it has unless told otherwise. */
export interface LocalServer {
  id: string;
  label: string;
  type: string;
  kind: string;
  port: number;
}

export interface FormField {
  name:
    | "url"
    | "name"
    | "api_key"
    | "models"
    | "dialects"
    | Exclude<keyof BackendSettings, "believe_cost" | "shared_files" | "batches">;
  label: string;
  /** `list`: words separated by commas; `members`: an object's, as `name: value` on a line each. */
  input: "text" | "password" | "list" | "members";
  /** What can be chosen; nothing chosen: as usual. */
  choices?: readonly string[];
  required: boolean;
  isMore?: boolean;
  placeholder?: string;
  hint: string;
}

/** A node's connection, as far as requests need it. */
export type NodeTunnel = Pick<TunnelClient, "open" | "fetch">;

/** One model on one node, as this instance can reach it. */
export interface Replica {
  agentId: string;
  host: string;
  port: number;
  apiKey: string | null;
  /** Whether host and port are meant to be dialled. */
  direct: boolean;
  /** Null when the node has no tunnel; then its host and port are all there is. */
  tunnel: NodeTunnel | null;
  /** Aborts when the node is deregistered: what it is answering then ends. */
  ended: AbortSignal;
  /** The node is about to go: it is asked only where no other has the model. */
  isLast: boolean;
}

export interface ModelPool {
  readonly backend: Backend;
  readonly size: number;
  /** Adds or replaces a node's replica; resolves once we know how to reach it, or that we cannot. */
  set(replica: Replica): Promise<void>;
  delete(agentId: string): void;
  /** Calls wait for the first node, instead of failing without one. */
  isStandby: boolean;
  /** How far the model is loaded where it is being loaded now. */
  loadedPercent: number;
  /** When a node last answered a call; infinite while one does. */
  usedMs(): number;
  /** Whether calls wait for a node, or have found all of them full since this was last asked. */
  isWanted(): boolean;
  via(agentId: string): "direct" | "tunnel" | null;
}

/** Turns `bridge://<node>/<service>` into a port on this machine. */
export interface BridgeResolver {
  connect(url: string): Promise<number>;
  /** Keeps the tunnel alive and reports each new port; the returned function ends that. */
  watch(options: { name: string; url: string; onPort: (port: number) => void }): () => void;
}

/**
 * Why a backend could not answer.
 * - `connect`: nothing reached the upstream, so another candidate may be tried
 * - `busy`: the same, because it has as many requests as it takes; that is not a failure
 * - `transport`: the connection broke or timed out after that
 * - `gone`: its node left meanwhile; which nodes there are is known from them, not from failures
 * - `upstream`: a reachable upstream answered with an error, `status` and `detail` say which
 * - `mismatch`: the upstream answered well, but not what was asked for, e.g. with a stream where none was wanted
 * - `request`: a field of the request is not what this backend can take; the message names it
 * - `unsupported`: the backend cannot do this at all
 */
export type BackendErrorKind =
  | "connect"
  | "busy"
  | "transport"
  | "gone"
  | "upstream"
  | "mismatch"
  | "request"
  | "unsupported";

/** A prompt that does not fit into the model's context; figures where the upstream gives them. */
export interface Overflow {
  promptTokens: number | null;
  contextTokens: number | null;
}

/** What an upstream's error body says besides its message. */
export interface UpstreamRefusal {
  type: string | null;
  code: string | null;
  param: string | null;
  overflow: Overflow | null;
}

/** Bun's advice to callers of fetch; it does not concern our clients. */
const RUNTIME_ADVICE = / For more information, pass `verbose: true` in the second argument to fetch\(\)/;

const DETAIL_BYTES_MAX = 4_096;
/** What is looked through for secrets: more than is shown, so that one at the edge of it is found whole. */
const SEARCHED_CHARS_MAX = 2 * DETAIL_BYTES_MAX;

function boundedDetail(text: string): string {
  if (text.length * 3 <= DETAIL_BYTES_MAX || Buffer.byteLength(text) <= DETAIL_BYTES_MAX) return text;
  // A character that was cut in two is left out.
  return new TextDecoder().decode(Buffer.from(text).subarray(0, DETAIL_BYTES_MAX), { stream: true });
}

const MEMBER_CHARS_MAX = 256;

/** Cut after the secrets are taken out: half a key would not be found. */
const boundedMember = (text: string | null): string | null =>
  text && hideSecrets(text.slice(0, SEARCHED_CHARS_MAX)).slice(0, MEMBER_CHARS_MAX);

const boundedRefusal = ({ type, code, param, overflow }: UpstreamRefusal): UpstreamRefusal => ({
  type: boundedMember(type),
  code: boundedMember(code),
  param: boundedMember(param),
  overflow,
});

export class BackendError extends Error {
  /** Bounded to 4 KB, without the secrets that upstreams were sent. */
  readonly detail: string;
  /** What the upstream's error body says besides its message, likewise. */
  readonly refusal?: UpstreamRefusal;
  /** Of a request that passed as it was: the refusal as it was answered, without secrets. */
  answer?: { body: string; contentType: string; headers: Readonly<Record<string, string>> };
  /** What the upstream says was used all the same, as chat completions report it. */
  usage?: unknown;
  constructor(
    readonly kind: BackendErrorKind,
    detail: string,
    readonly status?: number,
    readonly retryAfterSeconds?: number,
    refusal?: UpstreamRefusal,
  ) {
    const words = detail.replace(RUNTIME_ADVICE, "").slice(0, SEARCHED_CHARS_MAX);
    const told = boundedDetail(hideSecrets(words));
    super(kind === "upstream" ? `upstream ${status}: ${told}` : told);
    this.name = "BackendError";
    this.detail = told;
    this.refusal = refusal && boundedRefusal(refusal);
  }

  having(usage: unknown): this {
    this.usage = usage;
    return this;
  }
}

/** Whether nothing of the request reached the upstream. */
export const isUnsent = (error: unknown): error is BackendError =>
  error instanceof BackendError && (error.kind === "connect" || error.kind === "busy");

/** Anthropic's status for "overloaded". */
const OVERLOADED = 529;
const OVERLOADED_WORDS = /overload|too many requests|at capacity|queue is full|no (free |available )?slots?/i;

/** Whether an upstream has answered that it has too much to do. It works, and will take the request later. */
export function isOverloaded({ kind, status, retryAfterSeconds, refusal, detail }: BackendError): boolean {
  if (kind !== "upstream") return false;
  if (status === 429 || status === OVERLOADED) return true;
  const words = `${refusal?.type} ${refusal?.code} ${detail}`;
  return status === 503 && (retryAfterSeconds !== undefined || OVERLOADED_WORDS.test(words));
}

/** The HTTP client's failures as BackendErrors. */
export const clientFailure = (kind: FailureKind, message: string): BackendError =>
  new BackendError(kind, message);
