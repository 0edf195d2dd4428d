import { tidyAfter } from "./tidying.ts";

/**
 * What arrives within one turn of the event loop is handled together, once everything has been read. Between two
 * reads the operating system would otherwise push our code out of the processor's caches, and each message would
 * pay for fetching it again: for a gateway that is more than the work itself (docs/decisions/015).
 */
export interface Recipient {
  received(bytes: Buffer): void;
  /** The connection is closed; nothing more comes. */
  disconnected(error: Error | null): void;
  /** One of the above has thrown. */
  broke(error: unknown): void;
}

/** More than this is not gathered: the rest of the turn's bytes would only wait in memory. */
const GATHERED_BYTES_MAX = 1024 * 1024;

/** Bytes, or what a connection ended with. */
type Arrival = Buffer | Error | null;

let recipients: Recipient[] = [];
let arrivals: Arrival[] = [];
let gatheredBytes = 0;
let isScheduled = false;

export function arrived(recipient: Recipient, bytes: Buffer): void {
  gatheredBytes += bytes.length;
  gather(recipient, bytes);
  if (gatheredBytes > GATHERED_BYTES_MAX) handOver();
}

export function departed(recipient: Recipient, error: Error | null): void {
  gather(recipient, error);
}

function gather(recipient: Recipient, arrival: Arrival): void {
  recipients.push(recipient);
  arrivals.push(arrival);
  if (isScheduled) return;
  isScheduled = true;
  setImmediate(atEndOfTurn);
}

function atEndOfTurn(): void {
  isScheduled = false;
  handOver();
}

function handOver(): void {
  const to = recipients;
  const what = arrivals;
  recipients = [];
  arrivals = [];
  gatheredBytes = 0;
  for (let i = 0; i < to.length; i++) deliver(to[i]!, what[i]!);
  tidyAfter(to.length);
}

function deliver(recipient: Recipient, arrival: Arrival): void {
  try {
    if (arrival instanceof Uint8Array) recipient.received(arrival);
    else recipient.disconnected(arrival);
  } catch (error) {
    recipient.broke(error);
  }
}
