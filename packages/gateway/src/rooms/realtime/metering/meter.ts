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

/** Responses of one session that are under way or asked for. */
const RESPONSES_MAX = 16;
/** A response is let through when so much of it can be paid; what it says beyond is held for as it comes. */
const OUTPUT_TOKENS_MIN = 256;
/** What a response may say of a model whose limit is not known, unless somebody limits it. */
const OUTPUT_TOKENS_UNKNOWN = 8_192;
/** Transcripts without a response are charged for in portions of about this much. */
const TRANSCRIBED_TOKENS_MAX = 10_000;
const TRANSCRIPTION = /^conversation\.item\.input_audio_transcription\./;

export interface SessionMeterOptions {
  model: string;
  refId: string | null;
  rates: MediaRates;
  limits: ModelLimits;
  ids: Ids;
  /** Holds what a response may cost, or throws the refusal. */
  admit(requestId: string, bound: Bound): Admission | Promise<Admission>;
  /** Tells the operator of figures that the backend cannot mean. */
  suspect(problem: string, requestId: string): void;
}

/** A response that the client asked for and the upstream has not begun. */
interface Asked {
  eventId: unknown;
  turn: Turn;
}

const whenKnown = <T, R>(value: T | Promise<T>, use: (value: T) => R): R | Promise<Awaited<R>> =>
  value instanceof Promise ? (value.then(use) as Promise<Awaited<R>>) : use(value);

/**
 * What a session costs. Each response is admitted before it is let through, whoever began it, is held for as it is
 * heard, and settled when it ends or is broken off.
 */
export class SessionMeter {
  readonly #context: SessionContext;
  #limit: OutputLimit = "none";
  readonly #turns = new Map<string, Turn>();
  readonly #asked: Asked[] = [];
  /** Transcripts of what no response was made of. */
  #transcribed: Turn | null = null;
  #isClosed = false;

  constructor(readonly options: SessionMeterOptions) {
    this.#context = new SessionContext(options.rates, options.limits.contextTokens);
  }

  /** The settings that the session begins with; throws when they cannot be. */
  configure(config: Record<string, unknown>): void {
    this.#limit = readLimit(config, { where: "config", model: this.options.model });
    this.#context.configure(config);
  }

  /** What the first response would need: for the look at what is left before the session is opened. */
  get firstBound(): Bound {
    return this.#bound(this.#context.promptTokens, "none");
  }

  /** Whether a response is under way. */
  get isAnswering(): boolean {
    return this.#turns.size > 0;
  }

  #bound(promptTokens: number, limit: OutputLimit): Bound {
    const inForce = limit === "none" ? this.#limit : limit;
    const outputTokensMax =
      typeof inForce === "number" ? inForce : (this.options.limits.outputTokensMax ?? OUTPUT_TOKENS_UNKNOWN);
    return { promptTokens, outputTokensMax, outputTokensMin: Math.min(OUTPUT_TOKENS_MIN, outputTokensMax) };
  }

  /** Throws when a client event names what cannot be; returns the output limit that it names. */
  check({ type, session, response }: Record<string, unknown>): OutputLimit {
    const { model } = this.options;
    if (type === "session.update") return readLimit(session, { where: "event.session", model });
    if (type === "response.create") return readLimit(response, { where: "event.response", model });
    return "none";
  }

  /** Before a client event is sent: throws, or rejects, when it cannot be paid. */
  client(event: Record<string, unknown>): void | Promise<void> {
    const limit = this.check(event);
    if (event.type === "session.update" && limit !== "none") this.#limit = limit;
    if (event.type === "response.cancel") for (const turn of this.#turns.values()) turn.isCancelled = true;
    if (event.type !== "response.create") return this.#context.client(event);
    if (this.#turns.size + this.#asked.length >= RESPONSES_MAX)
      fail("app_error", `The session has ${RESPONSES_MAX} responses under way; wait until some have ended`);
    const own = isObject(event.response) ? event.response : {};
    const read = this.#context.read({ byClient: true });
    read.promptTokens += this.#context.tokensIn(own);
    return whenKnown(this.#admit(read, { limit, isApart: own.conversation === "none" }), (turn) => {
      this.#asked.push({ eventId: event.event_id, turn });
    });
  }

  /** A `response.create` that was admitted could not be sent. */
  notSent(event: Record<string, unknown>): void {
    if (event.type === "response.create") this.#asked.pop()?.turn.admission.release();
  }

  #admit(
    read: Turn["read"],
    { limit = "none", isApart = false }: { limit?: OutputLimit; isApart?: boolean } = {},
  ): Turn | Promise<Turn> {
    const { ids, admit } = this.options;
    const requestId = ids.uuid();
    return whenKnown(admit(requestId, this.#bound(read.promptTokens, limit)), (admission) => {
      if (this.#isClosed) {
        admission.release();
        fail("app_error", "The session has ended");
      }
      return new Turn(admission, { requestId, read, isApart, formats: this.#context.formats });
    });
  }

  /** Before an upstream event is let through: throws, or rejects, when it cannot be paid. */
  server(event: ServerEvent): void | Promise<void> {
    this.#context.server(event);
    const type = String(event.type);
    if (type === "error") return this.#refusedByUpstream(event);
    if (TRANSCRIPTION.test(type)) return this.#transcript(event);
    if (!type.startsWith("response.")) return;
    const id = responseIdOf(event);
    if (type === "response.created") this.#settleCancelled(id);
    return whenKnown(this.#turnOf(id), (turn) => {
      if (type === "response.done") return this.#ended(turn, event);
      return whenKnown(turn.hear(event), requireHeld);
    }) as void | Promise<void>;
  }

  /** The response of this id; one that is new here was asked for by the client, or is begun by the upstream. */
  #turnOf(id: string | null): Turn | Promise<Turn> {
    const known = id === null ? this.#turns.values().next().value : this.#turns.get(id);
    if (known) return known;
    if (this.#turns.size >= RESPONSES_MAX)
      fail("app_error", `The upstream has begun more than ${RESPONSES_MAX} responses at once`);
    const opened = this.#asked.shift()?.turn ?? this.#admit(this.#context.read({ byClient: false }));
    return whenKnown(opened, (turn) => {
      this.#turns.set(id ?? "", turn);
      return turn;
    });
  }

  #refusedByUpstream(event: ServerEvent): void {
    const eventId = (event.error as { event_id?: unknown } | undefined)?.event_id;
    // Which one it refuses is not always said; those that come all the same are admitted when they begin.
    const isRefused = (asked: Asked) => typeof eventId !== "string" || asked.eventId === eventId;
    for (const asked of this.#asked.filter(isRefused)) {
      this.#asked.splice(this.#asked.indexOf(asked), 1);
      asked.turn.admission.release();
    }
  }

  /** Some upstreams never say that a cancelled response has ended; the next one says so for them. */
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

  /** Figures that the model cannot have are charged, since the operator chose the upstream, but they are told. */
  #judge(
    { requestId }: Turn,
    { reported, isAbsurd, promptTokens }: { reported: boolean; isAbsurd: boolean; promptTokens: number },
  ): void {
    const { limits, suspect } = this.options;
    const { contextTokens } = limits;
    if (isAbsurd)
      suspect("figures that no response can have; the gateway's own count was charged instead", requestId);
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

  /** A row for what took tokens; with a reference also for what took none. */
  #settle({ admission }: Turn, { promptTokens, completionTokens, estimated }: TurnUsage): void {
    if (promptTokens + completionTokens === 0 && this.options.refId === null) admission.release();
    else admission.settle({ backend: "realtime", promptTokens, completionTokens, estimated });
  }

  /** A transcript is worth what was transcribed, until a response is charged for the same audio. */
  #transcript(event: ServerEvent): void | Promise<void> {
    const { unpaidTokens } = this.#context;
    if (unpaidTokens === 0) return;
    const opened =
      this.#transcribed ?? this.#admit({ promptTokens: unpaidTokens, conversationTokens: 0 }, { limit: 1 });
    return whenKnown(opened, (turn) => {
      this.#transcribed = turn;
      turn.read.promptTokens = unpaidTokens;
      return whenKnown(turn.hear(event), (isHeld) => {
        requireHeld(isHeld);
        if (unpaidTokens + turn.deliveredTokens > TRANSCRIBED_TOKENS_MAX) this.#settleTranscribed();
      });
    }) as void | Promise<void>;
  }

  #settleTranscribed(): void {
    const turn = this.#transcribed;
    this.#transcribed = null;
    if (!turn) return;
    this.#settle(turn, turn.brokenOff());
    this.#context.paid(turn.read.promptTokens);
  }

  /**
   * Settles what was heard, and what was sent to be answered. An upstream that leaves without a word has done nothing
   * for the client.
   */
  close(leftBy: "upstream" | "us"): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const turn of [...this.#turns.values(), ...this.#asked.map((asked) => asked.turn)]) {
      if (leftBy === "upstream" && turn.deliveredTokens === 0) turn.admission.release();
      else this.#settle(turn, turn.brokenOff());
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

/** Null where the event does not say which response it belongs to. */
function responseIdOf({ response, response_id }: ServerEvent): string | null {
  const id = isObject(response) ? response.id : response_id;
  return typeof id === "string" && id !== "" ? id : null;
}
