import type { MediaRates } from "../../../backends/contract.ts";
import { BoundedMap } from "../../../kernel/bounded.ts";
import type { Clock } from "../../../kernel/clock.ts";
import { fail } from "../../../kernel/errors.ts";
import type { Ids } from "../../../kernel/ids.ts";
import { isObject } from "../../../kernel/json.ts";
import type { ModelLimits } from "../../billing/index.ts";
import type { Admission, Bound } from "../../metering/index.ts";
import { endIn, type ServerEvent } from "../server-events.ts";
import { AskedEvents, BEGINS_WITHIN_MS } from "./asked.ts";
import { SessionContext } from "./context.ts";
import { checkSettings, limitIn } from "./limits.ts";
import { Turn, type TurnUsage } from "./turn.ts";

/** Responses of one session at a time, running or requested. */
const RESPONSES_MAX = 16;
/** A response is admitted if this much output can be paid; its hold grows with the rest. */
const OUTPUT_TOKENS_MIN = 256;
/** Output limit of a model that is not in the price table. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
/** Of one session, whose ids are remembered. */
const SETTLED_MAX = 1_000;
/** Of a response whose upstream gives it none. */
const NO_ID = "";
/** Transcripts are settled whenever they reach about this many tokens. */
const TRANSCRIBED_TOKENS_MAX = 10_000;
const TRANSCRIPTION = /^conversation\.item\.input_audio_transcription\./;

interface SessionMeterOptions {
  model: string;
  refId: string | null;
  rates: MediaRates;
  known: readonly string[];
  limits: ModelLimits;
  ids: Ids;
  clock: Pick<Clock, "after" | "elapsed">;
  admit(requestId: string, bound: Bound): Promise<Admission>;
  /** Charges for what the upstream has begun though it was not admitted. */
  owe(requestId: string, usage: TurnUsage): number | null;
  /** Counts a response as a request, or throws the refusal. */
  pace(): Promise<void>;
  settled?(usage: TurnUsage, costNanoUsd: number | null): void;
  suspect(problem: string, requestId: string): void;
}

/** Client events that cost something, or change what others cost, unless the upstream refuses them. */
const ANSWERED: ReadonlySet<unknown> = new Set([
  "response.create",
  "input_audio_buffer.commit",
  "session.update",
]);

/** What a session costs: each response is admitted before it passes, its hold grows, and it is settled at its end. */
export class SessionMeter {
  readonly #context: SessionContext;
  readonly #turns = new Map<string, Turn>();
  /** Responses that are settled: what is told of them again is not passed on. */
  readonly #settled = new BoundedMap<string, true>(SETTLED_MAX);
  readonly #asked = new AskedEvents();
  /** The hold for transcripts: another model makes them, which the vendor bills besides. */
  #transcribed: Turn | null = null;
  /** Why a response that the upstream has begun is not let through: more of it may come before the session is closed. */
  #refusal: unknown = null;
  #holding: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(readonly options: SessionMeterOptions) {
    const { rates, limits, clock } = options;
    this.#context = new SessionContext(rates, limits.contextTokens, clock);
  }

  configure(config: Record<string, unknown>): void {
    const { model, known } = this.options;
    checkSettings(config, { where: "config", model, known });
    if (Object.keys(config).length === 0) return;
    // It is sent as the first update.
    const type = "session.update";
    this.#context.client({ type, session: config });
    this.#asked.add({ type, eventId: this.options.ids.uuid(), named: null });
  }

  /** The bound of the first response, checked before the session is opened. */
  get firstBound(): Bound {
    return this.#bound(this.#context.promptTokens, {});
  }

  get isAnswering(): boolean {
    return this.#turns.size > 0;
  }

  /** A response's own limit counts where it is larger: the upstream confirms none. */
  #bound(promptTokens: number, own: Record<string, unknown>): Bound {
    const limit = Math.max(limitIn(own) ?? 0, this.#context.outputLimit);
    const outputTokensMax = Number.isFinite(limit)
      ? limit
      : (this.options.limits.outputTokensMax ?? OUTPUT_TOKENS_UNKNOWN);
    return { promptTokens, outputTokensMax, outputTokensMin: Math.min(OUTPUT_TOKENS_MIN, outputTokensMax) };
  }

  /** Throws on bad settings in a client event. */
  check({ type, session, response }: Record<string, unknown>): void {
    const { model, known } = this.options;
    if (type === "session.update") checkSettings(session, { where: "event.session", model, known });
    if (type === "response.create") checkSettings(response, { where: "event.response", model, known });
  }

  /** Before a client event is sent: what to send. Fails when it cannot be paid. */
  async client(event: Record<string, unknown>): Promise<Record<string, unknown>> {
    this.check(event);
    const { type, event_id: named, response_id: cancelled } = event;
    if (type === "response.cancel")
      for (const [id, turn] of this.#turns) turn.isCancelled ||= cancelled ? cancelled === id : !turn.isApart;
    const turn = type === "response.create" ? await this.#ask(event) : undefined;
    const isHeard = type === "input_audio_buffer.commit" && this.#context.formats.isTranscribed;
    if (isHeard) await this.#transcript(null);
    const committed = this.#context.client(event);
    if (!ANSWERED.has(type)) return event;
    const eventId = this.options.ids.uuid();
    this.#asked.add({ type, eventId, named, turn, committed });
    return { ...event, event_id: eventId };
  }

  async #ask(event: Record<string, unknown>): Promise<Turn> {
    if (this.#turns.size + this.#asked.turns.length >= RESPONSES_MAX)
      fail("app_error", `The session has ${RESPONSES_MAX} responses in progress; wait until some have ended`);
    const own = isObject(event.response) ? event.response : {};
    const read = this.#context.read({ byClient: true });
    const named = (Array.isArray(own.input) ? own.input : []).flatMap((item) => item?.id ?? []);
    const again = named.length - new Set(named).size;
    read.promptTokens += this.#context.tokensIn(own) + again * read.conversationTokens;
    return this.#respond(read, own);
  }

  /** An event could not be sent, or the upstream has refused it. Returns the id that the client gave it. */
  notSent({ event_id }: Record<string, unknown>): unknown {
    return this.#refused(this.#asked.takeById(event_id));
  }

  #refused(asked: ReturnType<AskedEvents["takeById"]>): unknown {
    if (!asked) return undefined;
    asked.turn?.admission.release();
    this.#context.refused(asked);
    return asked.named ?? null;
  }

  async #respond(read: Turn["read"], own: Record<string, unknown>): Promise<Turn> {
    await this.options.pace();
    const turn = await this.#admit(read, this.#bound(read.promptTokens, own), own);
    turn.admission.sent();
    return turn;
  }

  /** One that the upstream has begun is owed, whoever left meanwhile and whatever is left to pay it. */
  async #begun(): Promise<Turn> {
    if (this.#refusal) throw this.#refusal;
    const read = this.#context.read({ byClient: false });
    return this.#respond(read, {}).catch((error) => {
      this.#refusal = error;
      this.#oweRead(read);
      throw error;
    });
  }

  #oweRead({ promptTokens, conversationTokens }: Turn["read"]): void {
    const audioInputTokens = this.#context.formats.isUsed ? Math.min(promptTokens, conversationTokens) : 0;
    this.#owe({ promptTokens, completionTokens: 0, audioInputTokens, estimated: true });
  }

  #owe(usage: TurnUsage): void {
    const { owe, ids, settled } = this.options;
    if (usage.promptTokens + usage.completionTokens === 0) return;
    const costNanoUsd = owe(ids.ordered(), usage);
    settled?.(usage, costNanoUsd);
  }

  async #admit(read: Turn["read"], bound: Bound, own: Record<string, unknown> = {}): Promise<Turn> {
    const { ids, admit } = this.options;
    const requestId = ids.ordered();
    const admission = await admit(requestId, bound);
    if (this.#isClosed) {
      admission.release();
      fail("app_error", "The session has ended");
    }
    return new Turn(admission, { requestId, read, own, formats: this.#context.formats.with(own) });
  }

  /** Whether an upstream event is let through: fails when it cannot be paid. */
  async server(event: ServerEvent): Promise<boolean> {
    this.#context.server(event, this.#asked);
    const type = String(event.type);
    if (TRANSCRIPTION.test(type)) this.#context.transcribed(event, this.#asked);
    if (type === "error") this.#refusedByUpstream(event);
    const isHeard = type === "input_audio_buffer.committed" && this.#context.formats.isTranscribed;
    if (isHeard || TRANSCRIPTION.test(type)) await this.#transcript(event);
    if (!type.startsWith("response.")) return true;
    const id = responseIdOf(event);
    const isNew = type === "response.created";
    // Engines may begin another one by an id that they had before.
    if (isNew) this.#settled.delete(id ?? NO_ID);
    else if (this.#settled.get(id ?? NO_ID)) return false;
    const turn = await this.#turnOf(id);
    if (isNew) this.#settleCancelled(turn);
    if (endIn(event) !== null) this.#ended(turn, event);
    else requireHeld(await turn.hear(event));
    return true;
  }

  /** The response with this id. A new one is the oldest that the client asked for, else the upstream started it. */
  async #turnOf(id: string | null): Promise<Turn> {
    const known = id === null ? this.#turns.values().next().value : this.#turns.get(id);
    if (known) return known;
    if (this.#turns.size >= RESPONSES_MAX)
      fail("app_error", `The upstream started more than ${RESPONSES_MAX} responses at once`);
    this.#context.answered();
    const turn = this.#asked.take("response.create")?.turn ?? (await this.#begun());
    this.#turns.set(id ?? NO_ID, turn);
    return turn;
  }

  /** DashScope names no event: the oldest response that was asked for is given up if it does not begin. One that begins later is admitted then. */
  #refusedByUpstream({ error }: ServerEvent): void {
    const told = isObject(error) ? error : {};
    const named = this.notSent(told);
    if (named !== undefined) told.event_id = named;
    if (typeof told.event_id === "string") return;
    const doubted = this.#asked.doubt("response.create");
    if (doubted)
      this.options.clock.after(BEGINS_WITHIN_MS, () => this.notSent({ event_id: doubted.eventId }));
  }

  /** Some upstreams send no `response.done` for a cancelled response: the next in the conversation ends it. */
  #settleCancelled(next: Turn): void {
    for (const turn of this.#turns.values())
      if (turn !== next && turn.isCancelled && !turn.isApart && !next.isApart) this.#breakOff(turn);
  }

  #ended(turn: Turn, event: ServerEvent): void {
    const { reported, isAbsurd, ...usage } = turn.ended(event);
    this.#forget(turn);
    this.#settle(turn, usage);
    this.#judge(turn, { reported, isAbsurd, promptTokens: usage.promptTokens });
    this.#said(turn, usage, reported);
  }

  /** Implausible figures are charged, since the operator chose the upstream, but they are reported. */
  #judge(
    { requestId }: Turn,
    { reported, isAbsurd, promptTokens }: { reported: boolean; isAbsurd: boolean; promptTokens: number },
  ): void {
    const { limits, suspect } = this.options;
    const { contextTokens } = limits;
    if (isAbsurd) suspect("impossible usage figures; the gateway's own count was charged instead", requestId);
    else if (reported && contextTokens !== null && promptTokens > contextTokens)
      suspect(
        `${promptTokens} input tokens, more than the model's context window of ${contextTokens}`,
        requestId,
      );
  }

  #breakOff(turn: Turn): void {
    const usage = turn.brokenOff();
    this.#forget(turn);
    this.#settle(turn, usage);
    this.#said(turn, usage, false);
  }

  #said({ isApart, hasOwnInput, read }: Turn, usage: Omit<TurnUsage, "estimated">, reported: boolean): void {
    if (!isApart) this.#context.said(read, { ...usage, reported: reported && !hasOwnInput });
  }

  #forget(turn: Turn): void {
    for (const [id, open] of this.#turns) {
      if (open !== turn) continue;
      this.#turns.delete(id);
      if (id !== NO_ID) this.#settled.set(id, true);
    }
  }

  /** Writes a row if there are tokens, or if the session has a reference. */
  #settle({ admission }: Turn, usage: TurnUsage): void {
    if (usage.promptTokens + usage.completionTokens === 0 && this.options.refId === null) admission.release();
    else {
      const costNanoUsd = admission.settle({ backend: "realtime", ...usage });
      this.options.settled?.(usage, costNanoUsd);
    }
  }

  /** Holds what transcripts take. Null: before a commit is sent. */
  #transcript(event: ServerEvent | null): Promise<void> {
    const held = this.#holding.then(() => this.#holdTranscript(event));
    this.#holding = held.catch(() => {});
    return held;
  }

  async #holdTranscript(event: ServerEvent | null): Promise<void> {
    const { transcripts, bufferedTokens } = this.#context;
    const promptTokens = transcripts.promptTokens + (event ? 0 : bufferedTokens);
    // A transcript may come after its sound was settled.
    const isWritten = event !== null && TRANSCRIPTION.test(String(event.type));
    if (promptTokens === 0 && !isWritten) return;
    const bound = { promptTokens, outputTokensMax: 1, outputTokensMin: 1 };
    this.#transcribed ??= await this.#admit({ promptTokens, conversationTokens: 0 }, bound);
    const turn = this.#transcribed;
    turn.read.promptTokens = promptTokens;
    requireHeld(await turn.hear(event));
    if (transcripts.promptTokens + turn.deliveredTokens > TRANSCRIBED_TOKENS_MAX) this.#settleTranscribed();
  }

  #settleTranscribed(): void {
    const turn = this.#transcribed;
    this.#transcribed = null;
    const { promptTokens, completionTokens: told } = this.#context.takeTranscripts();
    const completionTokens = Math.max(told, turn?.deliveredTokens ?? 0);
    if (promptTokens + completionTokens === 0) {
      turn?.admission.release();
      return;
    }
    const usage = { promptTokens, completionTokens, audioInputTokens: promptTokens, estimated: true };
    if (turn) this.#settle(turn, usage);
    else this.#owe(usage);
  }

  /** Settles open responses: output so far, and input. Nothing, if the upstream hung up before any output. */
  close(leftBy: "upstream" | "us"): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const asked = this.#asked.takeAll();
    if (leftBy === "upstream") for (const event of asked) this.#context.refused(event);
    for (const turn of [...this.#turns.values(), ...asked.flatMap(({ turn }) => turn ?? [])]) {
      if (leftBy === "upstream" && turn.deliveredTokens === 0) turn.admission.release();
      else this.#settle(turn, turn.brokenOff());
    }
    if (leftBy === "us" && this.#context.isAnswerDue) this.#oweRead(this.#context.read({ byClient: false }));
    this.#turns.clear();
    this.#settleTranscribed();
  }
}

function requireHeld(isHeld: boolean): void {
  if (!isHeld)
    fail("payment_required", "Nothing is left to pay for the rest of this response; top up and start again");
}

function responseIdOf({ response, response_id }: ServerEvent): string | null {
  const id = isObject(response) ? response.id : response_id;
  return typeof id === "string" && id !== "" ? id : null;
}
