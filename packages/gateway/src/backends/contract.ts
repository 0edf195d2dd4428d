/**
 * A model-serving upstream as the gateway sees it. A backend has only the operations that it supports; there are
 * no stubs. Chat and embeddings use the format of chat completions in both directions: a kind with another wire
 * format converts at its own edge, so that everything above can relay bytes.
 */
import type { TunnelClient } from "@model-gateway/protocol/tunnel/client.ts";
import type { Answer, FailureKind, Origin, OriginOptions } from "@model-gateway/wire/client";
import type { SessionOf } from "../kernel/affinity.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import { hideSecrets } from "../kernel/secrets.ts";

export type { Answer, Flow, HttpAnswer, PieceReader } from "@model-gateway/wire/client";

/** Work that is posted unchanged to a path beside chat completions. */
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
  /** Empty: the clip stays with the upstream; `content` fetches it. */
  url: string;
  mime_type: string;
  width?: number;
  height?: number;
  duration_seconds?: number;
  expires_at?: string;
}

export type HealthState = "Healthy" | "Degraded" | "Unhealthy";

export const DIALECTS = ["chat", "responses", "messages", "gemini"] as const;
export type DialectName = (typeof DIALECTS)[number];

/** How a key is sent: as a bearer, or in the header of this name. */
export const AUTHS = ["bearer", "x-api-key", "x-goog-api-key", "api-key"] as const;
export type AuthName = (typeof AUTHS)[number];

export const CHAT_LIMIT_FIELDS = ["max_tokens", "max_completion_tokens"] as const;

/** Differences from the usual way to call a server. */
export interface BackendManner {
  auth?: AuthName;
  limit_field?: (typeof CHAT_LIMIT_FIELDS)[number];
  id_prefix?: string;
}

export interface BackendSettings extends BackendManner {
  /** Sent with every request; as secret as the key. */
  headers?: Readonly<Record<string, string>>;
  /** Fields of a request's body that are set or dropped. */
  set?: Readonly<Record<string, unknown>>;
  drop?: readonly string[];
  /** Charge the cost that it reports. */
  believe_cost?: boolean;
  /** Further fields that may be sent; not for text. */
  fields?: readonly string[];
  /** Dollars per call of the vendor's own tools; callers who pay may use only these. */
  tool_prices?: Readonly<Record<string, number>>;
  batches?: boolean;
  /** Requests may name files, containers and caches in the operator's account with the vendor. */
  shared_files?: boolean;
}

export interface Trial {
  name: string;
  ok: boolean;
  detail: string;
}

/** What was found out when the backend was added. The operator's own settings take precedence. */
export interface Seen extends BackendManner {
  dialects: DialectName[];
  model: string | null;
  trials: Trial[];
  /** Tokens that finding out took; nobody is charged for them. */
  prompt_tokens: number;
  completion_tokens: number;
  at: string;
}

export interface BackendConfig extends BackendSettings {
  seen?: Seen;
  name: string;
  kind: string;
  /** As the operator gave it: a kind or a server's name such as `vllm`. */
  type: string;
  /** One of its kind's dialects, if the type names one. */
  dialect?: string;
  /** Chat APIs of its server, the one for chats first; absent: by its host. */
  dialects?: readonly DialectName[];
  /** As registered, also if it is a bridge:// URL. */
  url: string;
  /** Several are separated by spaces or commas; for a Google service account, the JSON of its key file. */
  apiKey: string | null;
  models: readonly string[];
  capabilities?: readonly CapabilityName[];
  /** Maximum number of calls at once; absent: no limit. */
  concurrency?: number;
  /** False: not used. Absent if it cannot be disabled. */
  enabled?: boolean;
}

export interface ModelInfo {
  id: string;
  /** A few facts from its server, such as the context length. */
  meta?: Record<string, unknown>;
  capabilities?: readonly CapabilityName[];
}

export interface ProbeResult {
  state: HealthState;
  /** Empty if the kind discovers none. */
  models: readonly ModelInfo[];
  detail?: string;
}

/** A JSON request body. It is passed on as bytes and parsed only if needed. */
export interface JsonBody {
  /** The complete payload: model id resolved, the gateway's own fields removed, `extra` merged. */
  bytes(): Uint8Array<ArrayBuffer> | string;
  object(): Record<string, unknown>;
  /** The client wants the model's thoughts, which some dialects only send on request. */
  readonly wantsThoughts?: boolean;
  /** Converted from another API's request. */
  readonly isMade?: boolean;
  /** For multipart forms: sent instead of the bytes. */
  form?(): Blob;
}

export interface ModelCall {
  model: string;
  body: JsonBody;
  requestId: string;
  /** Parts of the answer may be kept for later requests with the same scope; absent: nothing is kept. */
  scope?: string;
  /** Its session, whose prompt is cached at the node or the key's account that served it before. */
  session?: SessionOf;
  /** Aborted when the client leaves or a deadline passes. Created on first use. */
  readonly signal: AbortSignal;
  /** Calls back once when the call is or was aborted: cheaper than `signal`. Only one callback is possible. */
  whenAborted(run: (reason: unknown) => void): void;
  /** Called if it was aborted before anything was sent. */
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
  headers: Readonly<Record<string, string>>;
}

/** Reads a copy of an answer in its own dialect while its bytes are passed on. */
export interface NativeReader {
  /** The newest usage in the form of chat completions; null: none yet. */
  readonly usage: unknown;
  readonly isComplete: boolean;
  /** Whether the usage covers all that was written so far. */
  readonly isCounted: boolean;
  readonly isOver: boolean;
  /** The upstream's own message of a failure inside the stream. */
  readonly failure: string | null;
  /** Returns what the model wrote in a stream's event, in any form. */
  read(event: Record<string, unknown>): unknown;
  /** Returns what the model wrote in a whole answer. Throws if it is not an answer. */
  whole(answer: Record<string, unknown>): unknown;
  /** Events that end the stream as if the answer had reached its limit. */
  limited(usage: { promptTokens: number; completionTokens: number } | null): string;
  failed(message: string): string;
}

export interface NativeBody {
  value(name: string): unknown;
  includes(text: string): boolean;
}

/** A dialect of a backend, for requests and answers that are passed on unchanged. */
export interface NativeDialect {
  /** Field with the limit of an answer; `generationConfig.x` is inside `generationConfig`. */
  limitField: string;
  /** It refuses a lower one, so this much may be written whatever the client asks for; absent: none. */
  limitMin?: number;
  /** The client's headers that are passed on. */
  requestHeaders: RegExp;
  /** The answer's headers that are passed on. */
  answerHeaders: RegExp;
  /** Fields to replace, as JSON: the vendor would refuse thoughts in the history that it did not sign. */
  mended(body: NativeBody, model: string): readonly (readonly [string, string])[];
  /** Resolves with a 2xx answer in the dialect. Its BackendErrors have the upstream's own `answer`. */
  post(call: NativeCall): Promise<Answer>;
  reader(): NativeReader;
}

export interface PostCall extends ModelCall {
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
  /** Backend-specific fields such as seed, steps, cfg. */
  extra: Record<string, unknown>;
}

export type VideoPoll =
  | { state: "pending"; progress?: number }
  | {
      state: "succeeded";
      result: VideoResult;
      /** Facts about the finished video, in the upstream's own fields. */
      made?: Record<string, unknown>;
    }
  | { state: "failed"; error: string };

/** What a task will ask for. Its price is computed from this. */
export interface VideoAsked {
  /** All fields that set length, size or count, with the upstream's own names, at any depth. */
  members: Record<string, unknown>;
  /** Length of the video if no member sets it. */
  defaultSeconds: number;
  known: readonly string[];
  /** Fields of the request that the upstream does not support. */
  unsent?: readonly string[];
}

export interface VideoCapability {
  /** What `submit` will ask for. Sends nothing. */
  asked(request: VideoRequest): VideoAsked;
  submit(request: VideoRequest, signal: AbortSignal): Promise<string>;
  /** Whether the server has this API, if a free call can show it. */
  isServed?(signal: AbortSignal): Promise<boolean>;
  poll(taskId: string, signal: AbortSignal): Promise<VideoPoll>;
  /** The clip, or a range of it, if it stays with the upstream; null: there is none. */
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
  /** False if the upstream is too slow and its bounded buffer is full. */
  send(event: Record<string, unknown>): boolean;
  close(): void;
}

/** How the upstream counts audio and images. If its models differ, the highest rates. */
export interface MediaRates {
  /** Samples per second of PCM16, unless the session sets another rate. */
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
  readonly known: readonly string[];
  open(options: RealtimeOpen, signal: AbortSignal): Promise<RealtimeLink>;
}

/** A key that the server refused, and until when it is not used. */
export interface RefusedKey {
  endsWith: string;
  untilMs: number;
}

/** Operations fail with BackendErrors, or with the reason of the call's signal. */
export interface Backend {
  readonly config: BackendConfig;
  /** Resolves with a 2xx chat-completions answer: JSON, or SSE with `stream`. */
  chat?(call: ChatCall): Promise<Answer>;
  /** Dialects besides chat completions whose requests are passed on unchanged. */
  native?: ReadonlyMap<DialectName, NativeDialect>;
  /** Absent: `max_tokens`. */
  limitFields?: LimitFields;
  readonly keys?: {
    refused(): RefusedKey[];
    /** Takes over keys that another process was refused. */
    setAside(refused: readonly RefusedKey[]): void;
    onRefused: (() => void) | null;
  };
  /** Its API has no `n`: a chat always has one answer. */
  writesOne?: boolean;
  /** The least that this chat can be limited to; absent: any limit. */
  limitMin?(model: string, body: Pick<JsonBody, "isMade" | "object">): number;
  /** The limit that it sets on chats without one; absent: none. */
  usualOutputTokens?(model: string): number;
  embed?(call: ModelCall): Promise<Answer>;
  /** Posts to another path of the same API, such as `/completions`, and resolves with its 2xx answer. */
  post?(path: string, call: PostCall): Promise<Answer>;
  /** What else may be posted; the server may still lack the path. Absent: nothing. */
  posts?: readonly PostedCapability[];
  video?: VideoCapability;
  /** Unknown whether it makes videos: it may be asked for one, but is not listed for videos. */
  readonly mayMakeVideos?: boolean;
  realtime?: RealtimeCapability;
  /** Sends a method and params unchanged and returns the raw result. */
  invoke?(method: string, params: Record<string, unknown> | undefined, signal: AbortSignal): Promise<unknown>;
  /** Loading progress of the model that a call would wait for; null: it is loaded. */
  loadedPercent?(): number | null;
  /** Health and discovery in one; must never spend tokens. */
  probe(signal: AbortSignal): Promise<ProbeResult>;
  close(): void;
}

/** Fields that limit a chat's output, by model; `options.x` is inside `options`. The first is the default. */
export type LimitFields = (model: string) => readonly string[];

const USUAL_LIMIT_FIELDS = ["max_tokens"] as const;

export const limitFieldsOf = (backend: Backend, model: string): readonly string[] =>
  backend.limitFields?.(model) ?? USUAL_LIMIT_FIELDS;

export interface BackendDeps {
  fetch: (url: string, init?: BunFetchRequestInit) => Promise<Response>;
  /** Connections to a plain-http server without `fetch`; null: only `fetch` can reach it. */
  openOrigin: ((options: OriginOptions) => Origin) | null;
  clock: Clock;
  ids: Ids;
  log: Log;
}

export interface BackendKind {
  kind: string;
  label: string;
  speaks: string;
  types: readonly NamedType[];
  /** Schemes of its URLs. The first is used through a bridge tunnel. */
  schemes: readonly [string, ...string[]];
  /** The most that a backend of this kind can do. */
  capabilities: readonly CapabilityName[];
  /** Which lists its models come from, in order of precedence. */
  modelSources: readonly ModelSource[];
  limitFields?(config: BackendConfig): LimitFields;
  /** Dialects that its servers may speak; absent: there are none to try. */
  dialects?: readonly DialectName[];
  /** Backends of this kind may have several keys, and settings. */
  takesSettings?: true;
  /** Runs on the operator's own hardware, where tokens are free; absent: no. */
  isOwn?(config: Pick<BackendConfig, "type">): boolean;
  /** Fields of video clips and voice sessions that are passed on, by dialect. */
  known?: Readonly<Record<string, readonly string[]>>;
  fields: readonly FormField[];
  /** `config.url` can be dialled: bridges are resolved before. */
  create(config: BackendConfig, deps: BackendDeps): Backend;
}

/** `static`: as registered; `discovered`: from its probe. */
export type ModelSource = "static" | "discovered";

interface NamedType {
  name: string;
  dialect?: string;
  /** Set if the console's form offers it beside the kind. */
  label?: string;
  /** A server that people run on their own machine; it is looked for at this port. */
  local?: { id: string; label: string; port: number };
}

export interface LocalServer extends NonNullable<NamedType["local"]> {
  type: string;
  kind: string;
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
  /** `list`: separated by commas; `members`: one `name: value` per line. */
  input: "text" | "password" | "list" | "members";
  /** Without a choice the usual value applies. */
  choices?: readonly string[];
  required: boolean;
  isMore?: boolean;
  placeholder?: string;
  hint: string;
}

export type NodeTunnel = Pick<TunnelClient, "open" | "fetch">;

/** One model on one node, as this instance can reach it. */
export interface Replica {
  agentId: string;
  host: string;
  port: number;
  apiKey: string | null;
  /** Whether host and port may be dialled. */
  direct: boolean;
  tunnel: NodeTunnel | null;
  /** Aborts when the node is deregistered, which ends its calls. */
  ended: AbortSignal;
  /** The node is about to leave: it is called only if no other has the model. */
  isLast: boolean;
}

export interface ModelPool {
  readonly backend: Backend;
  readonly size: number;
  /** Adds or replaces a node's replica; resolves once it is known whether it can be reached. */
  set(replica: Replica): Promise<void>;
  delete(agentId: string): void;
  /** Without a node, calls wait for one instead of failing. */
  isStandby: boolean;
  /** Progress of the node that is loading the model. */
  loadedPercent: number;
  /** When a node last answered a call; infinite during a call. */
  usedMs(): number;
  /** Whether calls wait for a node, or all nodes were full since the last time this was called. */
  isWanted(): boolean;
  via(agentId: string): "direct" | "tunnel" | null;
}

/** Turns `bridge://<node>/<service>` into a port on this machine. */
export interface BridgeResolver {
  connect(url: string): Promise<number>;
  /** Keeps the tunnel alive and reports each new port; the returned function stops that. */
  watch(options: { name: string; url: string; onPort: (port: number) => void }): () => void;
}

/**
 * Why a backend could not answer.
 * - `connect`: nothing reached the upstream, so another candidate may be tried
 * - `busy`: the same, because it is at its limit of requests; not a failure
 * - `transport`: the connection broke or timed out later
 * - `too_large`: the answer is larger than the gateway reads
 * - `gone`: its node left; not a failure of the backend
 * - `upstream`: the upstream answered with an error; see `status` and `detail`
 * - `mismatch`: the answer is not what was asked for, e.g. a stream where none was wanted
 * - `request`: this backend does not support a field of the request; the message names it
 * - `unsupported`: the backend does not have this operation
 */
export type BackendErrorKind =
  | "connect"
  | "busy"
  | "transport"
  | "too_large"
  | "gone"
  | "upstream"
  | "mismatch"
  | "request"
  | "unsupported";

export interface Overflow {
  promptTokens: number | null;
  contextTokens: number | null;
}

/** An upstream's error body without its message. */
export interface UpstreamRefusal {
  type: string | null;
  code: string | null;
  param: string | null;
  overflow: Overflow | null;
}

/** Bun's advice to callers of fetch, which is not for our clients. */
const RUNTIME_ADVICE = / For more information, pass `verbose: true` in the second argument to fetch\(\)/;

const DETAIL_BYTES_MAX = 4_096;
/** Secrets are searched for in more text than is shown, so that one at the cut is found whole. */
const SEARCHED_CHARS_MAX = 2 * DETAIL_BYTES_MAX;

function boundedDetail(text: string): string {
  if (text.length * 3 <= DETAIL_BYTES_MAX || Buffer.byteLength(text) <= DETAIL_BYTES_MAX) return text;
  // Drops a character that was cut in two.
  return new TextDecoder().decode(Buffer.from(text).subarray(0, DETAIL_BYTES_MAX), { stream: true });
}

const MEMBER_CHARS_MAX = 256;

/** Cut after secrets are removed: half a key would not be found. */
const boundedMember = (text: string | null): string | null =>
  text && hideSecrets(text.slice(0, SEARCHED_CHARS_MAX)).slice(0, MEMBER_CHARS_MAX);

export class BackendError extends Error {
  /** At most 4 KB, without secrets. */
  readonly detail: string;
  readonly refusal?: UpstreamRefusal;
  /** The upstream's own refusal of a request that was passed on unchanged, without secrets. */
  answer?: { body: string; contentType: string; headers: Readonly<Record<string, string>> };
  /** Usage that the upstream reports for the failed request, in the form of chat completions. */
  usage?: unknown;
  constructor(
    readonly kind: BackendErrorKind,
    detail: string,
    readonly status?: number,
    readonly retryAfterSeconds?: number,
    refusal?: UpstreamRefusal,
  ) {
    const searched = detail.replace(RUNTIME_ADVICE, "").slice(0, SEARCHED_CHARS_MAX);
    const shown = boundedDetail(hideSecrets(searched));
    super(kind === "upstream" ? `upstream ${status}: ${shown}` : shown);
    this.name = "BackendError";
    this.detail = shown;
    this.refusal = refusal && {
      type: boundedMember(refusal.type),
      code: boundedMember(refusal.code),
      param: boundedMember(refusal.param),
      overflow: refusal.overflow,
    };
  }

  having(usage: unknown): this {
    this.usage = usage;
    return this;
  }
}

export const isUnsent = (error: unknown): error is BackendError =>
  error instanceof BackendError && (error.kind === "connect" || error.kind === "busy");

const ANTHROPIC_OVERLOADED = 529;
const OVERLOADED_WORDS = /overload|too many requests|at capacity|queue is full|no (free |available )?slots?/i;

/** Whether the upstream is overloaded: it works, and will take the request later. */
export function isOverloaded({ kind, status, retryAfterSeconds, refusal, detail }: BackendError): boolean {
  if (kind !== "upstream") return false;
  if (status === 429 || status === ANTHROPIC_OVERLOADED) return true;
  const words = `${refusal?.type} ${refusal?.code} ${detail}`;
  return status === 503 && (retryAfterSeconds !== undefined || OVERLOADED_WORDS.test(words));
}

export const clientFailure = (kind: FailureKind, message: string): BackendError =>
  new BackendError(kind, message);
