import type { MediaRates } from "../../../backends/contract.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { isObject, textOf } from "../../../kernel/json.ts";
import type { UsageParts } from "../../../kernel/usage-parts.ts";
import { COUNTED_MAX, estimateTokens } from "../../metering/index.ts";
import type { ServerEvent } from "../server-events.ts";
import { type AskedEvents, BEGINS_WITHIN_MS } from "./asked.ts";
import { AudioFormats, numberOf, type SaidBy } from "./audio.ts";
import { limitIn } from "./limits.ts";
import { type Committed, itemIdOf, TRANSCRIPTION, Transcripts } from "./transcripts.ts";
import type { Turn } from "./turn.ts";

/** Settings that are tracked by name; vendors have about two dozen. */
const SETTINGS_MAX = 256;
const OTHER_SETTINGS = "";
const OWN = /^(instructions|tools)$/;
const DEPTH_MAX = 8;
/** Media parts are never deeper than that, nor in tools, which are read whole, with their numbers. */
const depthOf = (name: string, depth = 0) => (name === "tools" ? DEPTH_MAX + 1 : depth);

const COMMIT = "input_audio_buffer.commit";
const SPEECH_END = "input_audio_buffer.speech_stopped";
/** Nobody has spoken for long: the silence is committed, and answered. */
const SILENCE_END = "input_audio_buffer.timeout_triggered";
/** Speech that was appended is detected by then. */
const DETECTED_WITHIN_MS = 30_000;

/** What a response reads. */
export interface Read {
  promptTokens: number;
  /** Of it, all but the settings; of that, what was committed and not missed; what it may have missed. */
  conversationTokens: number;
  committedTokens: number;
  sentTokens: number;
  /** The settings, as far as it is sure to read them. */
  settingsTokens: number;
  /** Said in the session until then. */
  saidTokens: number;
  /** What the client sent for it alone, which is counted once. */
  ownTokens: number;
}

/** The input of the next response: settings and the conversation so far, estimated until usage is reported. */
export class SessionContext {
  readonly formats: AudioFormats;
  readonly #settings = new Map<string, number>();
  #conversationTokens = 0;
  /** What the conversation has grown by as responses ended. */
  #saidTokens = 0;
  /** Sent by the client since a response was reported: one that the upstream begins may have missed it. */
  #sentTokens = 0;
  #appendedSeconds = 0;
  /** Of it, what is neither committed nor cleared; and what the client has cleared and the upstream may still have. */
  #bufferedSeconds = 0;
  #clearingSeconds = 0;
  #clears = 0;
  /** Null: nobody speaks. Undefined: no speech was ever told. */
  #speechStartMs: number | null | undefined;
  /** How much was appended by a time, and how much so long ago that it can be no new speech. */
  #appendedBy = { ms: 0, seconds: 0 };
  #silentSeconds = 0;
  /** Whether the upstream sends `committed` events; one that does not may use appended audio at any time. */
  #tellsCommits = false;
  /** Updates that the upstream has not answered: until then what it says may be about earlier ones. */
  #updates = 0;
  readonly transcripts: Transcripts;
  /** Audio that responses may have read and nobody has committed. */
  #early: Committed | undefined;
  /** Of it, what no response is known to have read. */
  #earlyTokens = 0;
  /** What the upstream said last, which stands when a later update is refused. Undefined: it tells no settings. */
  #told: Record<string, unknown> | undefined;
  /** Since when the upstream has speech that no response has begun for. */
  #answerDueMs: number | null = null;
  /** In force. A smaller one is once the upstream has confirmed it. */
  outputLimit = Number.POSITIVE_INFINITY;

  constructor(
    readonly rates: MediaRates,
    readonly windowTokens: number,
    readonly clock: Pick<Clock, "elapsed">,
  ) {
    this.formats = new AudioFormats(rates);
    this.transcripts = new Transcripts(this.formats);
  }

  /** But instructions and tools that a response has of its own. */
  settingsTokens(own: Record<string, unknown> = {}): number {
    const read = [...this.#settings].filter(([name]) => (own[name] ?? null) === null || !OWN.test(name));
    return read.reduce((sum, [, tokens]) => sum + tokens, 0);
  }

  /** What makes an answer shorter or cheaper counts only once the upstream confirms it. */
  #adjust(session: Record<string, unknown>, saidBy: SaidBy): void {
    this.formats.configure(session, saidBy);
    const limit = limitIn(session);
    if (limit !== undefined)
      this.outputLimit = saidBy === "client" ? Math.max(this.outputLimit, limit) : limit;
  }

  #configure(session: Record<string, unknown>, saidBy: SaidBy): void {
    this.#adjust(session, saidBy);
    for (const [name, value] of Object.entries(session)) {
      const before = saidBy === "client" ? (this.#settings.get(name) ?? 0) : 0;
      const tokens = Math.max(before, this.tokensIn(value, depthOf(name)));
      if (this.#settings.has(name) || this.#settings.size < SETTINGS_MAX) this.#settings.set(name, tokens);
      else this.#settings.set(OTHER_SETTINGS, (this.#settings.get(OTHER_SETTINGS) ?? 0) + tokens);
    }
  }

  /** Estimated tokens of settings or items, a token a character after `left`; booleans and numbers do not count. */
  tokensIn(value: unknown, depth = 0, left = { chars: COUNTED_MAX }): number {
    if (typeof value === "string" && left.chars <= 0) return value.length;
    left.chars -= textOf(value).length;
    if (typeof value === "string") return estimateTokens(value);
    if (typeof value !== "object" || value === null) return 0;
    if (Array.isArray(value) && depth <= DEPTH_MAX)
      return value.reduce<number>((sum, each) => sum + this.tokensIn(each, depth + 1, left), 0);
    if (depth > DEPTH_MAX) return estimateTokens(JSON.stringify(value).slice(1, -1));
    const { type } = value as { type?: unknown };
    let tokens = type === "input_image" ? this.rates.tokensPerImage : 0;
    for (const [name, content] of Object.entries(value)) {
      if (type === "input_image" && name === "image_url") continue;
      if (type === "input_audio" && name === "audio")
        tokens += this.formats.tokensOf(this.formats.secondsOf(textOf(content), "input"), "input");
      else tokens += this.tokensIn(name, 0, left) + this.tokensIn(content, depthOf(name, depth + 1), left);
    }
    return tokens;
  }

  /** Returns the audio that the event commits. */
  client(event: Record<string, unknown>): Committed | undefined {
    if (event.type === "session.update") {
      this.#updates++;
      if (isObject(event.session)) this.#configure(event.session, "client");
    } else if (event.type === "input_audio_buffer.append") {
      const seconds = this.formats.secondsOf(textOf(event.audio), "input");
      this.#appendedSeconds += seconds;
      this.#bufferedSeconds += seconds;
      const ms = this.clock.elapsed();
      if (ms - this.#appendedBy.ms >= DETECTED_WITHIN_MS) {
        this.#silentSeconds = this.#appendedBy.seconds;
        this.#appendedBy = { ms, seconds: this.#appendedSeconds };
      }
    } else if (event.type === "input_audio_buffer.clear") {
      this.#clears++;
      this.#clearingSeconds += this.#bufferedSeconds + (this.#takeEarly()?.seconds ?? 0);
      this.#bufferedSeconds = 0;
    } else if (event.type === "input_audio_buffer.commit") {
      // Where commits count, nobody has read it yet.
      const seconds = this.#bufferedSeconds + (this.#takeEarly()?.seconds ?? 0);
      const committed = this.#commit(seconds);
      this.#bufferedSeconds = 0;
      this.#sentTokens += committed.tokens;
      return committed;
    }
    const imageTokens = event.type === "input_image_buffer.append" ? this.rates.tokensPerImage : 0;
    const tokens = event.type === "conversation.item.create" ? this.tokensIn(event.item) : imageTokens;
    this.#conversationTokens += tokens;
    this.#sentTokens += tokens;
    return undefined;
  }

  /** The upstream has refused, or not been sent, an event that the client asked for. */
  refused({ type, committed }: { type: unknown; committed?: Committed }): void {
    if (type === "session.update" && this.#updates > 0 && --this.#updates === 0) this.#confirm(this.#told);
    if (!committed) return;
    this.#bufferedSeconds += committed.seconds;
    this.transcripts.refused(committed);
  }

  server(event: ServerEvent, asked: AskedEvents): void {
    if (event.type === "session.updated" && this.#updates > 0) {
      this.#updates--;
      asked.take("session.update");
    }
    if (event.type === "session.created" || event.type === "session.updated") {
      this.#told = isObject(event.session) ? event.session : {};
      this.#confirm(this.#told);
    } else if (event.type === "conversation.item.done" && isObject(event.item)) {
      // Of servers that the client named, and that the upstream asks: their tools, and what these answered.
      if (textOf(event.item.type).startsWith("mcp_")) this.#conversationTokens += this.tokensIn(event.item);
    } else if (event.type === "input_audio_buffer.speech_started")
      this.#speechStartMs = numberOf(event.audio_start_ms);
    else if (event.type === SPEECH_END || event.type === SILENCE_END) {
      if (event.type === SILENCE_END) this.#speechStartMs = numberOf(event.audio_start_ms);
      const committed = this.#speech(numberOf(event.audio_end_ms), asked);
      committed.itemId = itemIdOf(event);
      asked.add({ type: SPEECH_END, named: null, committed });
    } else if (event.type === "input_audio_buffer.committed") {
      this.#tellsCommits = true;
      const committed = this.#confirmed(event, asked);
      if (!committed) this.#answerDueMs = this.formats.answersSpeech ? this.clock.elapsed() : null;
      (committed ?? this.#commitAll()).itemId = itemIdOf(event);
    } else if (TRANSCRIPTION.test(String(event.type)))
      this.transcripts.transcribed(event, () =>
        this.#tellsCommits ? undefined : (this.#confirmed(event, asked) ?? this.#takeRead()),
      );
    else if (event.type === "input_audio_buffer.cleared" && this.#clears > 0 && --this.#clears === 0)
      this.#clearingSeconds = 0;
  }

  #confirm({ instructions, tools, ...rest }: Record<string, unknown> = {}): void {
    const saidBy = this.#updates > 0 ? "client" : "upstream";
    this.#adjust(rest, saidBy);
    // The vendor's default instructions are input of every response, too.
    const told = Object.entries({ instructions, tools }).filter(([, value]) => value !== undefined);
    this.#configure(Object.fromEntries(told), saidBy);
  }

  /** Speech, or the client's own commit. */
  #confirmed(event: ServerEvent, asked: AskedEvents): Committed | undefined {
    const named = asked.take(SPEECH_END, itemIdOf(event));
    return (named ?? asked.take(COMMIT) ?? asked.take(SPEECH_END))?.committed;
  }

  /** Speech has ended: the upstream commits it, and may answer. */
  #speech(endMs: number, asked: AskedEvents): Committed {
    this.#answerDueMs = this.formats.answersSpeech ? this.clock.elapsed() : null;
    this.#bufferedSeconds += this.#takeEarly()?.seconds ?? 0;
    const speechSeconds = (endMs - (this.#speechStartMs ?? Number.NaN)) / 1_000;
    const afterSeconds = this.#appendedSeconds - endMs / 1_000;
    this.#speechStartMs = null;
    if (!(speechSeconds >= 0)) return this.#commitAll();
    const all = this.#waitingSeconds;
    const seconds = Math.min(speechSeconds, all);
    // What follows the speech may have been sent already. What precedes it is silence, which nobody reads.
    const left = Math.min(all - seconds, Math.max(0, afterSeconds));
    this.#bufferedSeconds = Math.min(this.#bufferedSeconds, left);
    this.#clearingSeconds = left - this.#bufferedSeconds;
    const spoken = this.#commit(seconds);
    // The rest of it is in the client's own commits, which find nothing more to commit.
    for (let rest = speechSeconds - seconds; rest > 0; ) {
      const own = asked.take(COMMIT)?.committed;
      if (!own) break;
      rest -= own.seconds;
      spoken.tokens += own.tokens;
      spoken.transcriptTokens += own.transcriptTokens;
    }
    return spoken;
  }

  #commitAll(): Committed {
    const committed = this.#commit(this.#waitingSeconds + (this.#takeEarly()?.seconds ?? 0));
    this.#bufferedSeconds = 0;
    this.#clearingSeconds = 0;
    return committed;
  }

  get #waitingSeconds(): number {
    return this.#bufferedSeconds + this.#clearingSeconds;
  }

  #takeEarly(): Committed | undefined {
    const early = this.#takeRead();
    this.#earlyTokens = Math.max(0, this.#earlyTokens - (early?.tokens ?? 0));
    return early;
  }

  #takeRead(): Committed | undefined {
    const early = this.#early;
    this.#early = undefined;
    return early;
  }

  /** What the transcript of a commit would read now. */
  get bufferedTokens(): number {
    const seconds = this.#bufferedSeconds + (this.#early?.seconds ?? 0);
    return this.transcripts.estimateOf(this.formats.tokensOf(seconds, "input"));
  }

  /** What may be committed before the upstream begins. Where it detects speech, long silence is none. */
  get #unheardSeconds(): number {
    const start = this.#speechStartMs === null ? this.#silentSeconds : Number(this.#speechStartMs) / 1_000;
    const seconds = this.#appendedSeconds - start;
    return seconds >= 0 ? Math.min(this.#waitingSeconds, seconds) : this.#waitingSeconds;
  }

  /** Moves so much of the appended audio into the conversation. */
  #commit(seconds: number, isTranscribed = this.formats.isTranscribed): Committed {
    const tokens = this.formats.tokensOf(seconds, "input");
    this.#conversationTokens += tokens;
    return this.transcripts.commit(seconds, tokens, isTranscribed);
  }

  /** The upstream responds to speech at once; one that has not by now will not. */
  get isAnswerDue(): boolean {
    return this.#answerDueMs !== null && this.clock.elapsed() - this.#answerDueMs < BEGINS_WITHIN_MS;
  }

  answered(): void {
    this.#answerDueMs = null;
  }

  /** The input of a response that starts now. One that the client asks for may also read what is not committed yet. */
  read({ own, ownTokens = 0 }: { own?: Turn["own"]; ownTokens?: number } = {}): Read {
    if (!this.#tellsCommits && this.#bufferedSeconds > 0) {
      // Its transcript is owed once there is one.
      const seconds = this.#bufferedSeconds;
      const early = this.transcripts.commit(seconds, this.formats.tokensOf(seconds, "input"), false);
      this.#bufferedSeconds = 0;
      const earlier = this.#takeRead();
      this.#earlyTokens += early.tokens;
      early.tokens += earlier?.tokens ?? 0;
      early.seconds += earlier?.seconds ?? 0;
      this.#early = early;
    }
    const mayRead = own || !this.#tellsCommits;
    const unheardTokens = mayRead ? this.formats.tokensOf(this.#unheardSeconds, "input") : 0;
    const conversationTokens = this.#conversationTokens + unheardTokens + this.#earlyTokens;
    const settingsTokens = this.settingsTokens(own);
    const sentTokens = own ? 0 : this.#sentTokens;
    return {
      promptTokens: Math.min(settingsTokens + conversationTokens, this.windowTokens),
      conversationTokens,
      committedTokens: this.#conversationTokens - sentTokens,
      sentTokens,
      settingsTokens,
      saidTokens: this.#saidTokens,
      ownTokens,
    };
  }

  /** Updates the conversation after a response: its reported input and output, or else its output added. */
  said(read: Read, { promptTokens, completionTokens }: UsageParts, isReported: boolean): void {
    const before = this.#conversationTokens;
    if (isReported) {
      this.#earlyTokens = 0;
      const since = Math.max(0, before - read.committedTokens);
      this.#sentTokens = Math.max(0, Math.min(this.#sentTokens - read.sentTokens, since));
      // The reported input includes the settings, which are counted separately, and are only estimated.
      const readTokens = Math.max(promptTokens - read.settingsTokens, read.committedTokens);
      this.#conversationTokens = Math.min(promptTokens, readTokens) + completionTokens + since;
    } else this.#conversationTokens += completionTokens;
    this.#saidTokens += this.#conversationTokens - before;
  }

  /** A response also reads what others have said between its asking and its beginning. */
  begins({ read, own }: Pick<Turn, "read" | "own">): void {
    const tokens = this.#saidTokens - read.saidTokens;
    const moreTokens = Math.max(0, Math.min(tokens, this.windowTokens - read.promptTokens));
    read.promptTokens += moreTokens;
    read.conversationTokens += moreTokens;
    read.committedTokens += tokens;
    read.saidTokens = this.#saidTokens;
    read.settingsTokens = this.#told && this.#updates > 0 ? 0 : this.settingsTokens(own) + read.ownTokens;
  }
}
