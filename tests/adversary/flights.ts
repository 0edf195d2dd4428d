import type { AnswerPlan, Leave, Member, ModelClass, VoiceResponse } from "./plot.ts";
import { marksIn } from "./tokens.ts";

/** How an answer of the upstream came to its end. `closed`: the gateway hung up. */
export type End = "open" | "whole" | "failed" | "closed";

/** What the upstream read, and what it really served: its own count, which the gateway never sees. */
export interface Dispatch {
  /** The model as a server reads it that does not look at the case of keys. */
  model: string;
  promptTokens: number;
  choices: number;
  /** Output tokens that it was allowed for each choice; null: no limit was sent. */
  limit: number | null;
  /** Tokens of the pieces that it has written, by the number in their mark. */
  pieces: number[];
  /** Billed, but never sent: rejected predictions, choices that lost. */
  hiddenTokens: number;
  /** The usage that it reported last. */
  reported: { prompt: unknown; completion: unknown; cached?: number } | null;
  end: End;
}

/** What came back to the client. */
export interface Outcome {
  /** HTTP status, or the code of a JSON-RPC error; 0: no answer. */
  status: number;
  requestId: string | null;
  /** `x-service-max-tokens`: what the gateway lowered the limit to. */
  loweredTo: number | null;
  /** Pieces whose marks reached the client. */
  seen: Set<number>;
  /** The client went away before the end. */
  left: boolean;
  /** The gateway ended it, because more could not be paid. */
  isStopped: boolean;
  /** What was said about a refusal. */
  words: string;
}

export const REVOKED = "was revoked";
/** How each surface says that an answer is longer than allowed. No upstream here says so itself. */
export const STOPPED =
  /"(?:finish|done)_reason":"length"|"(?:stop_)?reason":"max_(?:output_)?tokens"|"finishReason":"MAX_TOKENS"/;
/** Its client left, its key was revoked or its money ended: the upstream may have ended its answer before that or not. */
export const isBrokenOff = ({
  left,
  words,
  isStopped = false,
}: Pick<Outcome, "left" | "words"> & { isStopped?: boolean }): boolean =>
  left || isStopped || words.includes(REVOKED);

export interface Asked {
  surface: string;
  model: ModelClass;
  plan: AnswerPlan;
  leave: Leave;
  /** Of the prompt itself; a server may leave out parts that it does not know. */
  promptTokens: number;
  /** What is said in a voice session, response by response. */
  responses?: readonly VoiceResponse[];
  /** Spend-relevant members that the body really carries. */
  members: readonly Member[];
}

/** How long an upstream waits for a client that is going to leave. */
const HOLD_MS = 1_500;

/** One request from the client's hand to the upstream and back; both sides write down what they saw. */
export class Flight {
  readonly dispatches: Dispatch[] = [];
  readonly outcome: Outcome = {
    status: 0,
    requestId: null,
    loweredTo: null,
    seen: new Set(),
    left: false,
    isStopped: false,
    words: "",
  };
  readonly #arrived = Promise.withResolvers<void>();
  readonly #halfway = Promise.withResolvers<void>();

  constructor(
    /** Unique in the whole run; stands in the prompt, so that the upstream knows whose request it has. */
    readonly canary: number,
    /** Unique in the round; part of the model id, so that the usage row tells whose it is. */
    readonly modelNumber: number,
    readonly payer: Payer,
    readonly asked: Asked,
  ) {}

  /** Notes which of the pieces of this answer stand in a text that the client has. */
  see(text: string): void {
    for (const { request, piece } of marksIn(text))
      if (request === this.modelNumber) this.outcome.seen.add(piece);
  }

  get dispatch(): Dispatch | null {
    return this.dispatches.at(-1) ?? null;
  }

  arrive(dispatch: Dispatch): Dispatch {
    this.dispatches.push(dispatch);
    this.#arrived.resolve();
    return dispatch;
  }

  get arrived(): Promise<void> {
    return this.#arrived.promise;
  }

  /** The upstream has come to the point at which the client wants to be gone. */
  get halfway(): Promise<void> {
    return this.#halfway.promise;
  }

  /** The upstream waits here for the gateway to hang up, because the client leaves at this moment. */
  async waitForLeaving(moment: Leave["at"], isClosed: () => boolean): Promise<void> {
    if (this.asked.leave.at !== moment) return;
    this.#halfway.resolve();
    for (const deadline = Date.now() + HOLD_MS; !isClosed() && Date.now() < deadline; ) await Bun.sleep(5);
  }
}

/** Who pays: the person, and what is drawn on first. */
export interface Payer {
  userId: string;
  /** `user:<id>` or `group:<id>`. */
  account: string;
  /** Signed in rather than by a key. */
  signedIn: boolean;
  project: string | null;
}

export const canaryText = (canary: number): string => `canary-${canary}-`;
/** The number at the end of a model id, before its tag if it has one. */
export const numberOf = (model: string): number => Number(/-(\d+)(?::|$)/.exec(model)?.[1]);
const CANARY = /canary-(\d+)-/g;
/** The first canary of a text; 0: it has none. */
export const canaryIn = (text: string): number => Number([...text.matchAll(CANARY)][0]?.[1] ?? 0);

/** Every request that is under way, by its canary. */
export class Flights {
  #next = 1;
  readonly #open = new Map<number, Flight>();
  /** Requests that reached the upstream and belong to nobody: should stay 0. */
  strays = 0;

  open(modelNumber: number, payer: Payer, asked: Asked): Flight {
    const flight = new Flight(this.#next++, modelNumber, payer, asked);
    this.#open.set(flight.canary, flight);
    return flight;
  }

  /** A canary for a video task, which has no flight. */
  number(): number {
    return this.#next++;
  }

  /** History and recalled facts bring canaries of other requests along: the model's number tells which is its own. */
  find(body: string, model: string): Flight | null {
    const number = numberOf(model);
    let found: Flight | null = null;
    for (const [, canary] of body.matchAll(CANARY)) {
      const flight = this.#open.get(Number(canary));
      if (flight?.modelNumber === number) found = flight;
    }
    if (!found) this.strays++;
    return found;
  }

  forget(flights: Iterable<Flight>): void {
    for (const { canary } of flights) this.#open.delete(canary);
  }
}
