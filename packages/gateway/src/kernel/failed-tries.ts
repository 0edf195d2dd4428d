import { networkOf } from "@model-gateway/wire/server";
import { BoundedMap } from "./bounded.ts";
import type { Clock } from "./clock.ts";
import { ServiceError } from "./errors.ts";

/** Wrong bearers that one address, or one /64 of IPv6, may present in a minute. */
export const FAILED_TRIES_MAX = 100;
const WINDOW_MS = 60_000;
const NETWORKS_MAX = 50_000;

interface Tries {
  count: number;
  endsMs: number;
}

/** One of very many refusals of the same kind; the first ones were recorded. */
export class TooManyTries extends ServiceError {}

/** How the instances of the service tell each other of failures. */
interface Teller {
  publish(topic: string, message: string): void;
  subscribe(topic: string, receive: (message: string) => void): unknown;
}

/**
 * Slows down those who guess: after too many wrong bearers, on whichever instance, none of theirs is looked at for a
 * while.
 */
export class FailedTries {
  readonly #byNetwork = new BoundedMap<string, Tries>(NETWORKS_MAX);

  constructor(
    readonly clock: Clock,
    readonly teller: Teller,
    /** Tries of one topic are counted together. */
    readonly topic = "failed-tries",
  ) {
    teller.subscribe(topic, (network) => this.#count(network));
  }

  /** Throws the refusal when too many tries from there have failed lately. */
  check(ip: string): void {
    const tries = this.#of(networkOf(ip));
    if (!tries || tries.count < FAILED_TRIES_MAX) return;
    const retryAfterSeconds = Math.ceil((tries.endsMs - this.clock.now()) / 1000);
    const message = `Too many wrong tokens or keys; try again in ${retryAfterSeconds} s`;
    throw new TooManyTries("rate_limited", message, { retryAfterSeconds });
  }

  failed(ip: string): void {
    this.teller.publish(this.topic, networkOf(ip));
  }

  #count(network: string): void {
    const tries = this.#of(network);
    if (tries) tries.count++;
    else this.#byNetwork.set(network, { count: 1, endsMs: this.clock.now() + WINDOW_MS });
  }

  #of(network: string): Tries | undefined {
    const tries = this.#byNetwork.get(network);
    return tries && tries.endsMs > this.clock.now() ? tries : undefined;
  }
}
