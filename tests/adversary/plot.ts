import type { TextKind } from "./tokens.ts";

/** What one round of the storm does; made by the grammar, played by round.ts. All of it is plain data. */
export interface Plot {
  /** How many of the steps are under way at once. */
  atOnce: number;
  /** Whether upstreams may report far more than they served; then sums of what was recorded prove nothing. */
  exaggerates: boolean;
  people: Person[];
  /** Points in the pool of the group that everybody is in; the first person is its admin. */
  poolPoints: number;
  steps: Step[];
}

export interface Person {
  tier: TierName;
  walletPoints: number;
}

/** Quotas of a month in dollars and tokens; null is unlimited. They stand in billing_tiers before the start. */
export const TIERS = {
  "storm-none": { usd: 0, tokens: 0 },
  "storm-dollar": { usd: 1, tokens: null },
  "storm-dime": { usd: 0.1, tokens: 1_000_000 },
  "storm-tokens": { usd: null, tokens: 3_000 },
  "storm-rich": { usd: null, tokens: null },
} as const satisfies Record<string, { usd: number | null; tokens: number | null }>;
export type TierName = keyof typeof TIERS;

/** USD per million tokens, by the beginning of the model id. `free` has no price: it counts in tokens only. */
export const PRICES = {
  dear: { input: 100, output: 1_000, cached_input: 10 },
  cheap: { input: 1, output: 10, cached_input: 0.5 },
  embed: { input: 100, output: 0 },
  voice: { input: 100, output: 1_000 },
  free: null,
} as const satisfies Record<string, { input: number; output: number; cached_input?: number } | null>;
export type ModelClass = keyof typeof PRICES;
export type ChatClass = "dear" | "cheap" | "free";
/** Which wire format the upstream speaks. */
export type UpstreamKind = "chat" | "ollama" | "engine" | "messages" | "responses" | "gemini";

/** So many models of each class exist; within a round the number tells which request a usage row belongs to. */
export const MODEL_NUMBERS = 256;

export type Step =
  | ChatStep
  | RushStep
  | BatchStep
  | EmbedStep
  | VoiceStep
  | VideoStep
  | WorkStep
  | { do: "topup"; points: number }
  | { do: "allocate"; to: number; points: number }
  | { do: "discount"; who: number; multiplier: number }
  | { do: "revoke"; who: number }
  | { do: "disband" };

/** Which credential of the person is used: a key, a key of the group, or a key with a label of its own. */
export type KeyKind = "plain" | "other" | "group" | "fresh";

interface Sent {
  who: number;
  instance: number;
}

export interface ChatStep extends Sent, ChatRequest {
  do: "chat";
  key: KeyKind;
  /**
   * `gemini`: Gemini's own API. `cursor`: the body of a response at the door of chats. `socket`: chat.send over a WebSocket. `ollama` and
   * `generate`: Ollama's chats and single prompts; `raw`: a prompt that goes to the model as a text.
   */
  via:
    | "chat"
    | "cursor"
    | "responses"
    | "messages"
    | "gemini"
    | "completions"
    | "ollama"
    | "generate"
    | "raw"
    | "send"
    | "socket";
}

/** The same chat many times at one moment, on every instance. */
export interface RushStep {
  do: "rush";
  who: number;
  key: KeyKind;
  times: number;
  request: ChatRequest;
}

/** Several chat.send in one JSON-RPC batch. */
export interface BatchStep extends Sent {
  do: "batch";
  sends: ChatRequest[];
}

export interface ChatRequest {
  model: ChatClass;
  upstream: UpstreamKind;
  stream: boolean;
  prompt: Prompt;
  /** How the prompt of a text completion is written. */
  asText: { form: PromptForm; suffix: number };
  members: Member[];
  /** Goes on in the person's stored conversation. */
  conversation: boolean;
  memory: boolean;
  plan: AnswerPlan;
  leave: Leave;
}

/** One text, several, or the tokens themselves. */
export const PROMPT_FORMS = ["text", "texts", "tokens"] as const;
export type PromptForm = (typeof PROMPT_FORMS)[number];

export interface EmbedStep extends Sent {
  do: "embed";
  via: "embeddings" | "ollama";
  key: KeyKind;
  prompt: Prompt;
  form: PromptForm;
  members: Member[];
  plan: AnswerPlan;
  leave: Leave;
}

export interface Prompt {
  kind: TextKind;
  tokens: number;
  /**
   * A text that only looks like an embedded image, one in a part that has an image besides, or one in a part of a
   * kind that nobody knows.
   */
  disguise: "none" | "marker" | "data-url" | "beside-image" | "odd-part";
  images: number;
  /** Tokens of tool definitions and of a predicted output. */
  tools: number;
  prediction: number;
}

export type Spelling = "plain" | "escaped" | "capital" | "upper" | "folded";
export type Place = "top" | "extra" | "options";

/** One spend-relevant member of a body: under which name, how spelled, where, and with which JSON text. */
export interface Member {
  name: string;
  spelling: Spelling;
  place: Place;
  value: string;
  /** The same key once more before it: servers take the last one. */
  before: string | null;
}

export const OUTPUT_MEMBERS = [
  "content",
  "parts",
  "tool_calls",
  "function_call",
  "reasoning",
  "reasoning_content",
  "reasoning_details",
  "thinking",
  "audio",
  "refusal",
  "unheard_of",
  "beside_content",
] as const;
export type OutputMember = (typeof OUTPUT_MEMBERS)[number];

export const REPORTS = [
  "honest",
  "never",
  "running",
  "running-honest",
  "zero",
  "huge",
  "negative",
  "fraction",
  "text",
  "over",
  "half-absurd",
  "too-much",
] as const;
export type Report = (typeof REPORTS)[number];

/** What of the prompt the upstream says that it read from its cache: nothing, most of it, or more than there is. */
export const CACHED = ["none", "most", "beyond"] as const;
export type Cached = (typeof CACHED)[number];

export type Ending = "whole" | "no-done" | "cut" | "error-event" | "refuse" | "fail";

/** What the upstream does with a request, if it gets it. */
export interface AnswerPlan {
  /** Tokens that each choice would have if nothing limited it. */
  wants: number;
  pieceTokens: number;
  text: TextKind;
  member: OutputMember;
  /** All choices say the same, as they do at temperature 0. */
  alike: boolean;
  report: Report;
  cached: Cached;
  ending: Ending;
}

/** When the client goes away. */
export type Leave =
  | { at: "never" }
  | { at: "start"; afterMs: number }
  | { at: "dispatch" }
  | { at: "piece"; piece: number }
  | { at: "usage" };

export interface VoiceStep extends Sent {
  do: "voice";
  /** Tokens of the instructions, and seconds of audio that are appended. */
  instructions: number;
  audioSeconds: number;
  responses: VoiceResponse[];
  /** Stops by session.stop instead of realtime.stop. */
  byEvent: boolean;
}

export interface VoiceResponse {
  seconds: number;
  report: Report;
  /** The upstream begins it on its own when it has heard enough. */
  unasked: boolean;
  /** Leaves after this many pieces of it; null: waits for its end. */
  leaveAfter: number | null;
}

export const VIDEO_MODES = ["per_call", "per_second_resolution", "per_frame"] as const;
export type VideoMode = (typeof VIDEO_MODES)[number];
export const VIDEO_DIALECTS = ["minimax", "dashscope"] as const;
export type VideoDialect = (typeof VIDEO_DIALECTS)[number];

export interface VideoStep extends Sent {
  do: "video";
  key: KeyKind | "rpc";
  mode: VideoMode;
  dialect: VideoDialect;
  durationSeconds: number | null;
  width: number | null;
  height: number | null;
  /** JSON texts by key, merged into the task. */
  extra: Record<string, string>;
  /** Whether the upstream says what it made. */
  reports: boolean;
  /** Once the upstream has made it, and before the gateway has asked for it. */
  cancelled: boolean;
}

export const WORK_NAMES = ["images", "edits", "speech", "transcriptions", "rerank", "moderations"] as const;
export type WorkName = (typeof WORK_NAMES)[number];

export interface WorkStep extends Sent {
  do: "work";
  key: KeyKind;
  kind: WorkName;
  /** Images, words, seconds, documents or texts. */
  amount: number;
  /** Of images. */
  size: string | null;
  /** What JSON bodies carry besides. */
  members: Member[];
  /** The upstream makes half of it, and says so. */
  makesLess: boolean;
  ending: Exclude<Ending, "no-done" | "error-event">;
  leave: Extract<Leave, { at: "never" | "start" | "dispatch" }>;
}
