import { networkOf } from "@model-gateway/wire/server";
import { BoundedMap } from "./bounded.ts";
import type { Clock } from "./clock.ts";
import { KeyRefusal, ServiceError } from "./errors.ts";

/** Wrong bearers that one address, or one /64 of IPv6, may present in a minute. */
export const FAILED_TRIES_MAX = 100;
const WINDOW_MS = 60_000;

interface Tries {
  count: number;
  endsMs: number;
}

/** No request record is left for these: enough wrong keys from that address were recorded before. */
export class TooManyKeys extends KeyRefusal {}

/** The bus, which the kernel cannot import. */
interface Publisher {
  publish(topic: string, message: string): void;
  subscribe(topic: string, receive: (message: string) => void): unknown;
}

/** Counts wrong bearers by address, over all instances. A right one is never refused because of them. */
export class FailedTries {
  readonly #byNetwork = new BoundedMap<string, Tries>();

  constructor(
    readonly clock: Clock,
    readonly bus: Publisher,
    readonly topic = "failed-tries",
    readonly Refusal: typeof ServiceError = ServiceError,
  ) {
    bus.subscribe(topic, (network) => this.#count(network));
  }

  /** Counts a wrong bearer; returns the refusal if there were too many in this minute. */
  failed(ip: string): ServiceError | null {
    const network = networkOf(ip);
    const tries = this.#of(network);
    if (!tries || tries.count < FAILED_TRIES_MAX) {
      this.bus.publish(this.topic, network);
      return null;
    }
    const retryAfterSeconds = Math.ceil((tries.endsMs - this.clock.now()) / 1000);
    const message = `Too many wrong tokens or keys; try again in ${retryAfterSeconds} s`;
    return new this.Refusal("rate_limited", message, { retryAfterSeconds });
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
