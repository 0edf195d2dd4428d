import type { MediaRates } from "../../../backends/contract.ts";
import { fail } from "../../../kernel/errors.ts";
import type { Ids } from "../../../kernel/ids.ts";
import { isObject } from "../../../kernel/json.ts";
import type { ModelLimits } from "../../billing/index.ts";
import type { Admission, Bound } from "../../metering/index.ts";
import type { ServerEvent } from "../server-events.ts";
import { SessionContext } from "./context.ts";
import { type OutputLimit, readLimit } from "./limits.ts";
import { Turn, type TurnUsage } from "./turn.ts";

/** Responses of one session at a time, running or requested. */
const RESPONSES_MAX = 16;
/** A response is admitted if this much output can be paid; its hold grows with the rest. */
const OUTPUT_TOKENS_MIN = 256;
/** Output limit of a model that is not in the price table. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
/** Transcripts without a response are settled whenever they reach about this many tokens. */
const TRANSCRIBED_TOKENS_MAX = 10_000;
const TRANSCRIPTION = /^conversation\.item\.input_audio_transcription\./;

interface SessionMeterOptions {
  model: string;
  refId: string | null;
  rates: MediaRates;
  known: readonly string[];
  limits: ModelLimits;
  ids: Ids;
  admit(requestId: string, bound: Bound): Promise<Admission>;
  /** Counts a response as a request, or throws the refusal. */
  pace(): Promise<void>;
  settled?(usage: TurnUsage, costNanoUsd: number | null): void;
  suspect(problem: string, requestId: string): void;
}

interface TurnTerms {
  limit?: OutputLimit;
  isApart?: boolean;
  own?: Record<string, unknown>;
}

/** A response that the client asked for and the upstream has not started. */
interface AskedTurn {
  eventId: string;
  /** The id that the client gave it. */
  named: unknown;
  turn: Turn;
}

/** What a session costs: each response is admitted before it passes, its hold grows, and it is settled at its end. */
export class SessionMeter {
  readonly #context: SessionContext;
  #limit: OutputLimit = "none";
  readonly #turns = new Map<string, Turn>();
  readonly #asked: AskedTurn[] = [];
  /** The hold for transcripts of audio that no response was charged for. */
  #transcribed: Turn | null = null;
  #isClosed = false;

  constructor(readonly options: SessionMeterOptions) {
    this.#context = new SessionContext(options.rates, options.limits.contextTokens);
  }

  configure(config: Record<string, unknown>): void {
    const { model, known } = this.options;
    this.#limit = readLimit(config, { where: "config", model, known });
    this.#context.configure(config);
  }

  /** The bound of the first response, checked before the session is opened. */
  get firstBound(): Bound {
    return this.#bound(this.#context.promptTokens, "none");
  }

  get isAnswering(): boolean {
    return this.#turns.size > 0;
  }

  #bound(promptTokens: number, limit: OutputLimit): Bound {
    const inForce = limit === "none" ? this.#limit : limit;
    const outputTokensMax =
      typeof inForce === "number" ? inForce : (this.options.limits.outputTokensMax ?? OUTPUT_TOKENS_UNKNOWN);
    return { promptTokens, outputTokensMax, outputTokensMin: Math.min(OUTPUT_TOKENS_MIN, outputTokensMax) };
  }

  /** Throws on bad settings in a client event; returns the output limit that it sets. */
  check({ type, session, response }: Record<string, unknown>): OutputLimit {
    const { model, known } = this.options;
    if (type === "session.update") return readLimit(session, { where: "event.session", model, known });
    if (type === "response.create") return readLimit(response, { where: "event.response", model, known });
    return "none";
  }

  /** Before a client event is sent: what to send. Fails when it cannot be paid. */
  async client(event: Record<string, unknown>): Promise<Record<string, unknown>> {
    const limit = this.check(event);
    if (event.type === "session.update" && limit !== "none") this.#limit = limit;
    if (event.type === "response.cancel") for (const turn of this.#turns.values()) turn.isCancelled = true;
    if (event.type !== "response.create") {
      this.#context.client(event);
      return event;
    }
    if (this.#turns.size + this.#asked.length >= RESPONSES_MAX)
      fail("app_error", `The session has ${RESPONSES_MAX} responses in progress; wait until some have ended`);
    const own = isObject(event.response) ? event.response : {};
    const read = this.#context.read({ byClient: true });
    read.promptTokens += this.#context.tokensIn(own);
    const turn = await this.#respond(read, { limit, isApart: own.conversation === "none", own });
    // An error names the event that was refused. By an id of the client's own it might be another one's.
    const eventId = this.options.ids.uuid();
    this.#asked.push({ eventId, named: event.event_id, turn });
    return { ...event, event_id: eventId };
  }

  /** A `response.create` that was admitted could not be sent. */
  notSent(event: Record<string, unknown>): void {
    if (event.type === "response.create") this.#asked.pop()?.turn.admission.release();
  }

  async #respond(read: Turn["read"], terms: TurnTerms = {}): Promise<Turn> {
    await this.options.pace();
    const turn = await this.#admit(read, terms);
    turn.admission.sent();
    return turn;
  }

  async #admit(read: Turn["read"], { limit = "none", isApart = false, own = {} }: TurnTerms): Promise<Turn> {
    const { ids, admit } = this.options;
    const requestId = ids.ordered();
    const admission = await admit(requestId, this.#bound(read.promptTokens, limit));
    if (this.#isClosed) {
      admission.release();
      fail("app_error", "The session has ended");
    }
    return new Turn(admission, { requestId, read, isApart, formats: this.#context.formats.with(own) });
  }

  /** Before an upstream event is let through: fails when it cannot be paid. */
  async server(event: ServerEvent): Promise<void> {
    this.#context.server(event);
    const type = String(event.type);
    if (type === "error") return this.#refusedByUpstream(event);
    const isHeard = type === "input_audio_buffer.committed" && this.#context.formats.isTranscribed;
    if (isHeard || TRANSCRIPTION.test(type)) return this.#transcript(event);
    if (!type.startsWith("response.")) return;
    const id = responseIdOf(event);
    if (type === "response.created") this.#settleCancelled(id);
    const turn = await this.#turnOf(id);
    if (type === "response.done") this.#ended(turn, event);
    else requireHeld(await turn.hear(event));
  }

  /** The response with this id. A new one is the oldest that the client asked for, else the upstream started it. */
  async #turnOf(id: string | null): Promise<Turn> {
    const known = id === null ? this.#turns.values().next().value : this.#turns.get(id);
    if (known) return known;
    if (this.#turns.size >= RESPONSES_MAX)
      fail("app_error", `The upstream started more than ${RESPONSES_MAX} responses at once`);
    const turn = this.#asked.shift()?.turn ?? (await this.#respond(this.#context.read({ byClient: false })));
    this.#turns.set(id ?? "", turn);
    return turn;
  }

  /** Only the one that it can be about: DashScope names none and answers in order. One that starts all the same is admitted then. */
  #refusedByUpstream({ error }: ServerEvent): void {
    const told = isObject(error) ? error : {};
    const isNaming = "event_id" in told;
    const at = isNaming ? this.#asked.findIndex(({ eventId }) => eventId === told.event_id) : 0;
    const [refused] = at === -1 ? [] : this.#asked.splice(at, 1);
    refused?.turn.admission.release();
    if (refused && isNaming) told.event_id = refused.named ?? null;
  }

  /** Some upstreams send no `response.done` for a cancelled response; the next `response.created` ends it. */
  #settleCancelled(nextId: string | null): void {
    for (const [id, turn] of this.#turns) if (turn.isCancelled && id !== nextId) this.#breakOff(turn);
  }

  #ended(turn: Turn, event: ServerEvent): void {
    const { reported, isAbsurd, ...usage } = turn.ended(event);
    this.#forget(turn);
    this.#settle(turn, usage);
    this.#judge(turn, { reported, isAbsurd, promptTokens: usage.promptTokens });
    if (turn.isApart) this.#context.paid(usage.promptTokens);
    else this.#context.said(turn.read, { ...usage, reported });
    if (this.#context.unpaidTokens > 0) return;
    this.#transcribed?.admission.release();
    this.#transcribed = null;
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
    if (!turn.isApart) this.#context.said(turn.read, { ...usage, reported: false });
  }

  #forget(turn: Turn): void {
    for (const [id, open] of this.#turns) if (open === turn) this.#turns.delete(id);
  }

  /** Writes a row if there are tokens, or if the session has a reference. */
  #settle({ admission }: Turn, usage: TurnUsage): void {
    if (usage.promptTokens + usage.completionTokens === 0 && this.options.refId === null) admission.release();
    else {
      const costNanoUsd = admission.settle({ backend: "realtime", ...usage });
      this.options.settled?.(usage, costNanoUsd);
    }
  }

  /** Holds the tokens of audio that is transcribed, from its commit on, until a response is charged for the same audio. */
  async #transcript(event: ServerEvent): Promise<void> {
    const { unpaidTokens } = this.#context;
    if (unpaidTokens === 0) return;
    const turn =
      this.#transcribed ??
      (await this.#admit({ promptTokens: unpaidTokens, conversationTokens: 0 }, { limit: 1 }));
    this.#transcribed = turn;
    turn.read.promptTokens = unpaidTokens;
    requireHeld(await turn.hear(event));
    if (unpaidTokens + turn.deliveredTokens > TRANSCRIBED_TOKENS_MAX) this.#settleTranscribed();
  }

  #settleTranscribed(): void {
    const turn = this.#transcribed;
    this.#transcribed = null;
    if (this.#context.unpaidTokens === 0) turn?.admission.release();
    if (!turn || this.#context.unpaidTokens === 0) return;
    const { promptTokens, completionTokens, estimated } = turn.brokenOff();
    // By another model, whose price is about that of text.
    this.#settle(turn, { promptTokens, completionTokens, estimated });
    this.#context.paid(promptTokens);
  }

  /** Settles open responses: output so far, and input. Nothing, if the upstream hung up before any output. */
  close(leftBy: "upstream" | "us"): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const turn of [...this.#turns.values(), ...this.#asked.map((asked) => asked.turn)]) {
      if (leftBy === "upstream" && turn.deliveredTokens === 0) turn.admission.release();
      else {
        const usage = turn.brokenOff();
        this.#settle(turn, usage);
        this.#context.paid(usage.promptTokens);
      }
    }
    this.#turns.clear();
    this.#asked.length = 0;
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
