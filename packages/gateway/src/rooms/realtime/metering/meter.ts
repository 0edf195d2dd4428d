import type { MediaRates, RealtimeLink } from "../../../backends/contract.ts";
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
import { type ClosedTurn, lateUsage, Turn, type TurnUsage } from "./turn.ts";

/** Responses of one session at a time, running or requested. */
const RESPONSES_MAX = 16;
/** A response is admitted if this much output can be paid; its hold grows with the rest. */
const OUTPUT_TOKENS_MIN = 256;
/** Output limit of a model that is not in the price table. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
/** Context window of such a model. */
const CONTEXT_TOKENS_UNKNOWN = 128_000;
/** Of one session, whose ids are remembered. */
const SETTLED_MAX = 1_000;
/** Transcripts are settled whenever they reach about this many tokens. */
const TRANSCRIBED_TOKENS_MAX = 10_000;
/** The calls of a server of tools are in no response: they may come after it. */
const RESPONSE = /^response\.(?!mcp_call\.)/;
/** Events after which transcripts may take more. */
const HEARD = /^(input_audio_buffer|conversation\.item\.input_audio_transcription)\./;

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

type NewTurn = Pick<Turn, "read" | "own"> & { isBegun?: boolean };

/** Client events that cost something, or change what others cost, unless the upstream refuses them. */
const ANSWERED: ReadonlySet<unknown> = new Set([
  "response.create",
  "input_audio_buffer.commit",
  "session.update",
]);

/** What a session costs: each response is admitted before it passes, its hold grows, and it is settled at its end. */
export class SessionMeter {
  readonly #context: SessionContext;
  readonly #asked = new AskedEvents();
  /** Responses that the upstream has begun; of those without an id, the last. */
  readonly #turns = new Map<string, Turn>();
  /** Responses that are settled: what is told of them again is not passed on, and charged where it is more. */
  readonly #closed = new BoundedMap<string, ClosedTurn>(SETTLED_MAX);
  #lastClosed: ClosedTurn | null = null;
  /** All that hold something, each from the moment it is admitted. */
  readonly #open = new Set<Turn>();
  /** The hold for transcripts: another model makes them, which the vendor bills besides. */
  #transcribed: Turn | null = null;
  /** Why a response that the upstream has begun is not let through: more of it may come before the session is closed. */
  #refusal: unknown = null;
  #holding: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  constructor(readonly options: SessionMeterOptions) {
    const { rates, limits, clock } = options;
    this.#context = new SessionContext(rates, limits.contextTokens ?? CONTEXT_TOKENS_UNKNOWN, clock);
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
    return this.#bound(this.#readBy({}).promptTokens, {});
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
    const outputTokensMin = Math.min(OUTPUT_TOKENS_MIN, outputTokensMax);
    // Its hold may be smaller: nobody tells the upstream.
    return { promptTokens, outputTokensMax, outputTokensMin, perChoice: () => outputTokensMax };
  }

  /** Throws on bad settings in a client event. */
  check({ type, session, response }: Record<string, unknown>): void {
    const { model, known } = this.options;
    if (type === "session.update") checkSettings(session, { where: "event.session", model, known });
    if (type === "response.create") checkSettings(response, { where: "event.response", model, known });
  }

  /** Sends a client event; false when it could not be sent. Fails when it cannot be paid. */
  async client(event: Record<string, unknown>, send: RealtimeLink["send"]): Promise<boolean> {
    this.check(event);
    const { type, event_id: named, response_id: cancelled } = event;
    const turn = type === "response.create" ? await this.#ask(event) : undefined;
    if (type === "input_audio_buffer.commit") await this.#holdTranscripts(this.#context.bufferedTokens);
    this.#requireOpen();
    if (!ANSWERED.has(type) && !send(event)) return false;
    if (type === "response.cancel")
      // One that has not begun cannot be cancelled.
      for (const each of this.#turns.values())
        if (cancelled === undefined ? !each.isApart : cancelled === each.id) each.cancelled();
    const committed = this.#context.client(event);
    if (!ANSWERED.has(type)) return true;
    const eventId = this.options.ids.uuid();
    if (turn) turn.eventId = eventId;
    this.#asked.add({ type, eventId, named, turn, committed });
    const isSent = send({ ...event, event_id: eventId });
    if (isSent) turn?.sent();
    else this.#refused(this.#asked.takeById(eventId));
    return isSent;
  }

  #requireOpen(): void {
    if (this.#isClosed) fail("app_error", "The session has ended");
  }

  async #ask(event: Record<string, unknown>): Promise<Turn> {
    if (this.#turns.size + this.#asked.turns.length >= RESPONSES_MAX)
      fail("app_error", `The session has ${RESPONSES_MAX} responses in progress; wait until some have ended`);
    const own = isObject(event.response) ? event.response : {};
    return this.#respond({ read: this.#readBy(own), own });
  }

  /** What a response that the client asks for reads now. */
  #readBy(own: Turn["own"], ownTokens = this.#context.tokensIn(own)): Turn["read"] {
    const read = this.#context.read({ own, ownTokens });
    const input = Array.isArray(own.input) ? own.input : null;
    const named = (input ?? []).flatMap((item) => item?.id ?? []);
    // With input of its own it reads those items of the conversation that it names, each as often.
    const again = input && named.length === 0 ? -1 : named.length - new Set(named).size;
    const tokens = Math.max(read.settingsTokens, read.promptTokens + again * read.conversationTokens);
    read.promptTokens = tokens + ownTokens;
    return read;
  }

  /** An event could not be sent, or the upstream has refused it. Returns the id that the client gave it. */
  #refused(asked: ReturnType<AskedEvents["takeById"]>): unknown {
    if (!asked) return undefined;
    if (asked.turn) this.#end(asked.turn, null);
    this.#context.refused(asked);
    return asked.named ?? null;
  }

  async #respond(response: NewTurn): Promise<Turn> {
    await this.options.pace();
    return this.#admit(this.#bound(response.read.promptTokens, response.own), response);
  }

  /** One that the upstream has begun is owed, whoever left meanwhile and whatever is left to pay it. */
  async #begun(id: string | null, asked?: Pick<Turn, "read" | "own">): Promise<Turn> {
    const { read, own } = asked ?? { read: this.#context.read(), own: {} };
    try {
      if (this.#refusal) throw this.#refusal;
      if (this.#turns.size >= RESPONSES_MAX)
        fail("app_error", `The upstream started more than ${RESPONSES_MAX} responses at once`);
      return await this.#respond({ read, own, isBegun: true });
    } catch (error) {
      this.#refusal = error;
      this.#remember(id, { ...this.#oweRead(read), endedBy: null });
      throw error;
    }
  }

  #oweRead({ promptTokens, conversationTokens }: Turn["read"]): TurnUsage {
    const audioInputTokens = this.#context.formats.isUsed ? Math.min(promptTokens, conversationTokens) : 0;
    const usage = { promptTokens, completionTokens: 0, audioInputTokens, estimated: true };
    this.#owe(usage);
    return usage;
  }

  #owe(usage: TurnUsage): void {
    const { owe, ids, settled } = this.options;
    if (usage.promptTokens + usage.completionTokens === 0) return;
    const costNanoUsd = owe(ids.ordered(), usage);
    settled?.(usage, costNanoUsd);
  }

  async #admit(bound: Bound, { read, own, isBegun }: NewTurn): Promise<Turn> {
    const requestId = this.options.ids.ordered();
    const formats = this.#context.formats.with(own);
    const admission = await this.options.admit(requestId, bound);
    if (this.#isClosed) admission.release();
    this.#requireOpen();
    const turn = new Turn(admission, requestId, read, own, formats);
    if (isBegun) turn.sent();
    this.#open.add(turn);
    return turn;
  }

  /** Whether an upstream event is let through: fails when it cannot be paid. */
  async server(event: ServerEvent): Promise<boolean> {
    this.#context.server(event, this.#asked);
    const type = String(event.type);
    if (type === "error") this.#refusedByUpstream(event);
    if (HEARD.test(type)) await this.#holdTranscripts();
    if (!RESPONSE.test(type)) return true;
    const id = responseIdOf(event);
    const isCreated = type === "response.created";
    const known = id === null ? this.#turns.values().next().value : this.#turns.get(id);
    const closed = isCreated || known ? undefined : this.#closedOf(id, event);
    if (closed) {
      if (endIn(event) !== null) this.#owe(lateUsage(closed, event));
      return false;
    }
    const turn = isCreated ? await this.#created(id, event) : (known ?? (await this.#begin(id)));
    if (endIn(event) !== null) this.#ended(turn, event);
    else requireHeld(await turn.hear(event));
    return true;
  }

  /** Without an id, an end may be another one of the response that ended last. */
  #closedOf(id: string | null, event: ServerEvent): ClosedTurn | null | undefined {
    if (id !== null) return this.#closed.get(id);
    const last = this.#lastClosed;
    const endsAgain = endIn(event) !== null && last?.endedBy !== event.type;
    return this.#refusal || endsAgain ? last : undefined;
  }

  /** Engines may begin another response by an id that they had before, or by none. */
  async #created(id: string | null, { response }: ServerEvent): Promise<Turn> {
    let turn = this.#turns.get(id ?? "");
    // By an id that is in use, a beginning is told twice, unless the client has cancelled that response.
    const isAnother = turn?.isCancelled || (id === null && turn?.isCreated);
    if (turn && isAnother) this.#close(turn, turn.brokenOff());
    const { conversation_id: of } = isObject(response) ? response : {};
    if (!turn || isAnother) turn = await this.#begin(id, of === undefined ? undefined : of === null);
    // Some upstreams send no `response.done` for a cancelled response: the next in the conversation ends it.
    for (const each of this.#turns.values())
      if (each !== turn && each.isCancelled && !each.isApart && !turn.isApart)
        this.#close(each, each.brokenOff());
    if (!turn.isCreated) this.#context.begins(turn);
    turn.isCreated = true;
    return turn;
  }

  /** A new response is one that the client asked for, else the upstream started it. */
  async #begin(id: string | null, isApart?: boolean): Promise<Turn> {
    const { isAnswerDue } = this.#context;
    // The upstream answers speech: what the client asked for was too late, or comes after it.
    const isOther = isApart === false && isAnswerDue;
    if (isOther) this.#doubt();
    const asked = isOther ? undefined : this.#asked.begin(isApart, { alsoGivenUp: !isAnswerDue });
    // The error was about another one.
    if (asked?.isDoubted) this.#doubt();
    if (!asked) this.#context.answered();
    const turn = asked && !asked.isGivenUp ? asked.turn! : await this.#begun(id, asked?.turn);
    turn.id = id;
    this.#context.begins(turn);
    // It may be a later one, or have waited, and so have read more.
    if (asked && !turn.hasOwnInput) turn.mayHaveRead(this.#readBy(turn.own, turn.read.ownTokens));
    if (isOther || asked?.isDoubted) turn.others = this.#asked.turns;
    this.#turns.set(id ?? "", turn);
    return turn;
  }

  /** DashScope names no event: the oldest response that was asked for is given up if it does not begin. */
  #refusedByUpstream({ error }: ServerEvent): void {
    const told = isObject(error) ? error : {};
    const named = this.#refused(this.#asked.takeById(told.event_id));
    if (named !== undefined) {
      told.event_id = named;
      return;
    }
    for (const turn of this.#turns.values()) turn.mayGoOn();
    if (typeof told.event_id !== "string") this.#doubt();
    // What has begun in its place answers the speech.
    else
      for (const { eventId } of this.#turns.values()) if (eventId === told.event_id) this.#context.answered();
  }

  /** One that begins after it was given up is admitted then. */
  #doubt(): void {
    const doubted = this.#asked.doubt();
    if (!doubted) return;
    this.options.clock.after(BEGINS_WITHIN_MS, () => {
      const turn = this.#asked.giveUp(doubted);
      if (turn) this.#end(turn, null);
      for (const each of this.#turns.values()) if (each.others.includes(turn!)) each.mayHaveRead(turn!.read);
    });
  }

  /** Implausible figures are charged, since the operator chose the upstream, but they are reported. */
  #ended(turn: Turn, event: ServerEvent): void {
    for (const each of this.#asked.turns) if (turn.others.includes(each)) turn.mayHaveRead(each.read);
    const { isAbsurd, ...usage } = turn.ended(event);
    this.#close(turn, usage);
    const { limits, suspect } = this.options;
    if (isAbsurd)
      suspect("impossible usage figures; the gateway's own count was charged instead", turn.requestId);
    else if (!usage.estimated && usage.promptTokens > (limits.contextTokens ?? Number.POSITIVE_INFINITY))
      suspect(
        `${usage.promptTokens} input tokens, more than the model's context window of ${limits.contextTokens}`,
        turn.requestId,
      );
  }

  #close(turn: Turn, usage: TurnUsage): void {
    const { id, isApart, hasOwnInput, read, endedBy } = turn;
    this.#turns.delete(id ?? "");
    this.#remember(id, { ...usage, endedBy });
    this.#end(turn, usage);
    this.#context.formats.isUsed ||= (usage.audioOutputTokens ?? 0) > 0;
    if (!isApart) this.#context.said(read, usage, !usage.estimated && !hasOwnInput);
  }

  #remember(id: string | null, closed: ClosedTurn): void {
    this.#lastClosed = closed;
    if (id !== null) this.#closed.set(id, closed);
  }

  /** Ends a hold, once. Writes a row if there are tokens, or if the session has a reference. Null: nothing is owed. */
  #end(turn: Turn, usage: TurnUsage | null): void {
    if (!this.#open.delete(turn)) return;
    if (!usage || (usage.promptTokens + usage.completionTokens === 0 && this.options.refId === null))
      turn.admission.release();
    else {
      const costNanoUsd = turn.admission.settle({ backend: "realtime", ...usage });
      this.options.settled?.(usage, costNanoUsd);
    }
  }

  /** Holds what transcripts take, and what a commit adds before it is sent. */
  #holdTranscripts(bufferedTokens = 0): Promise<void> {
    const held = this.#holding.then(() => this.#holdDue(bufferedTokens));
    this.#holding = held.catch(() => {});
    return held;
  }

  async #holdDue(bufferedTokens: number): Promise<void> {
    const { transcripts } = this.#context;
    const { promptTokens: dueTokens, completionTokens } = transcripts.due;
    const promptTokens = dueTokens + bufferedTokens;
    if (promptTokens + completionTokens === 0) return;
    const bound = { promptTokens, outputTokensMax: 1, outputTokensMin: 1 };
    this.#transcribed ??= await this.#admit(bound, { read: { promptTokens } as Turn["read"], own: {} });
    const turn = this.#transcribed;
    turn.read.promptTokens = promptTokens;
    requireHeld(await turn.cover(completionTokens));
    if (dueTokens + completionTokens > TRANSCRIBED_TOKENS_MAX) this.#settleTranscribed();
  }

  #settleTranscribed(): void {
    const turn = this.#transcribed;
    this.#transcribed = null;
    const { promptTokens, completionTokens } = this.#context.transcripts.take();
    const isFree = promptTokens + completionTokens === 0;
    const usage = { promptTokens, completionTokens, audioInputTokens: promptTokens, estimated: true };
    if (turn) this.#end(turn, isFree ? null : usage);
    else this.#owe(usage);
  }

  /** Settles open responses: output so far, and input. Nothing, if the upstream hung up before any output. */
  close(leftBy: "upstream" | "us"): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const asked = this.#asked.takeAll();
    if (leftBy === "upstream") for (const event of asked) this.#context.refused(event);
    this.#settleTranscribed();
    // Those that are asked for begin when the others have ended.
    for (const turn of new Set([...this.#turns.values(), ...this.#open])) {
      if (!turn.isCreated) this.#context.begins(turn);
      const isFree = !turn.isOwed || (leftBy === "upstream" && turn.heard.tokens === 0);
      if (isFree) this.#end(turn, null);
      else this.#close(turn, turn.brokenOff());
    }
    if (leftBy === "us" && this.#context.isAnswerDue) this.#oweRead(this.#context.read());
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
