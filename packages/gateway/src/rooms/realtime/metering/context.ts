import type { MediaRates } from "../../../backends/contract.ts";
import { isObject } from "../../../kernel/json.ts";
import { estimateTokens } from "../../metering/index.ts";
import type { ServerEvent } from "../server-events.ts";
import { AudioFormats } from "./audio.ts";

/** Context window of a model whose window is not in the price table. */
const CONTEXT_TOKENS_UNKNOWN = 128_000;

/** Settings that are tracked by name; vendors have about two dozen. */
const SETTINGS_MAX = 256;
const OTHER_SETTINGS = "";
const DEPTH_MAX = 8;

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The input of the next response: settings and the conversation so far, estimated until usage is reported. */
export class SessionContext {
  readonly formats: AudioFormats;
  readonly #settings = new Map<string, number>();
  #conversationTokens = 0;
  /** Audio that was appended and not committed yet. */
  #bufferedSeconds = 0;
  #speechStartMs: number | null = null;
  #speechMs: number | null = null;
  /** Whether the upstream sends `committed` events; one that does not may use appended audio at any time. */
  #tellsCommits = false;
  /** Tokens of committed audio that no response has been charged for. */
  #unpaidTokens = 0;

  constructor(
    readonly rates: MediaRates,
    readonly contextTokens: number | null,
  ) {
    this.formats = new AudioFormats(rates);
  }

  get promptTokens(): number {
    const tokens = this.#settingsTokens + this.#conversationTokens;
    return Math.min(tokens, this.contextTokens ?? CONTEXT_TOKENS_UNKNOWN);
  }

  get #settingsTokens(): number {
    let sum = 0;
    for (const tokens of this.#settings.values()) sum += tokens;
    return sum;
  }

  get unpaidTokens(): number {
    return this.#unpaidTokens;
  }

  configure(session: Record<string, unknown>, saidBy: "client" | "upstream" = "client"): void {
    this.formats.configure(session, saidBy);
    for (const [name, value] of Object.entries(session)) {
      const tokens = this.tokensIn(value);
      if (this.#settings.has(name) || this.#settings.size < SETTINGS_MAX) this.#settings.set(name, tokens);
      else this.#settings.set(OTHER_SETTINGS, (this.#settings.get(OTHER_SETTINGS) ?? 0) + tokens);
    }
  }

  /** Estimated tokens of settings or items; booleans and numbers do not count. */
  tokensIn(value: unknown, depth = 0): number {
    if (typeof value === "string") return estimateTokens(value);
    if (typeof value !== "object" || value === null) return 0;
    if (Array.isArray(value) && depth <= DEPTH_MAX)
      return value.reduce<number>(
        (sum, each) => (typeof each === "number" ? sum : sum + this.tokensIn(each, depth + 1)),
        0,
      );
    // Media parts are never this deep.
    if (depth > DEPTH_MAX) return estimateTokens(JSON.stringify(value));
    const { type } = value as { type?: unknown };
    let tokens = 0;
    for (const [name, content] of Object.entries(value)) {
      if (type === "input_image" && name === "image_url") tokens += this.rates.tokensPerImage;
      else if (type === "input_audio" && name === "audio")
        tokens += this.formats.tokensOf(this.formats.secondsOf(text(content), "input"), "input");
      else tokens += estimateTokens(name) + this.tokensIn(content, depth + 1);
    }
    return tokens;
  }

  client(event: Record<string, unknown>): void {
    if (event.type === "session.update" && isObject(event.session)) this.configure(event.session);
    else if (event.type === "input_audio_buffer.append")
      this.#bufferedSeconds += this.formats.secondsOf(text(event.audio), "input");
    else if (event.type === "input_image_buffer.append")
      this.#conversationTokens += this.rates.tokensPerImage;
    else if (event.type === "conversation.item.create") this.#conversationTokens += this.tokensIn(event.item);
  }

  server(event: ServerEvent): void {
    if ((event.type === "session.created" || event.type === "session.updated") && isObject(event.session)) {
      // The vendor's default instructions are input of every response, too.
      const { instructions, tools, ...rest } = event.session;
      this.formats.configure(rest, "upstream");
      this.configure({ ...(instructions ? { instructions } : {}), ...(tools ? { tools } : {}) });
    } else if (event.type === "input_audio_buffer.speech_started")
      this.#speechStartMs = Number(event.audio_start_ms ?? Number.NaN);
    else if (event.type === "input_audio_buffer.speech_stopped")
      this.#speechMs = Number(event.audio_end_ms ?? Number.NaN) - (this.#speechStartMs ?? Number.NaN);
    else if (event.type === "input_audio_buffer.committed") {
      this.#tellsCommits = true;
      this.#commit();
    } else if (event.type === "input_audio_buffer.cleared") this.#bufferedSeconds = 0;
  }

  /** Moves the appended audio into the conversation; after voice detection only the part that was speech. */
  #commit(): void {
    const speechSeconds = (this.#speechMs ?? Number.NaN) / 1000;
    const seconds =
      speechSeconds >= 0 ? Math.min(speechSeconds, this.#bufferedSeconds) : this.#bufferedSeconds;
    const tokens = this.formats.tokensOf(seconds, "input");
    this.#conversationTokens += tokens;
    this.#unpaidTokens += tokens;
    this.#bufferedSeconds = 0;
    this.#speechStartMs = null;
    this.#speechMs = null;
  }

  /** The input of a response that starts now. One that the client asks for also reads uncommitted audio. */
  read({ byClient }: { byClient: boolean }): { promptTokens: number; conversationTokens: number } {
    if (this.#bufferedSeconds > 0 && (byClient || !this.#tellsCommits)) this.#commit();
    return { promptTokens: this.promptTokens, conversationTokens: this.#conversationTokens };
  }

  /** Updates the conversation after a response: its reported input and output, or else its output added. */
  said(
    read: { conversationTokens: number },
    {
      promptTokens,
      completionTokens,
      reported,
    }: { promptTokens: number; completionTokens: number; reported: boolean },
  ): void {
    if (reported) {
      const since = Math.max(0, this.#conversationTokens - read.conversationTokens);
      // The reported input includes the settings, which are counted separately.
      this.#conversationTokens = Math.max(0, promptTokens + completionTokens - this.#settingsTokens) + since;
    } else this.#conversationTokens += completionTokens;
    this.paid(promptTokens);
  }

  paid(promptTokens: number): void {
    this.#unpaidTokens = Math.max(0, this.#unpaidTokens - promptTokens);
  }
}
