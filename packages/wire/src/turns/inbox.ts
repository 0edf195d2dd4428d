import { drainMicrotasks } from "bun:jsc";
import { holdTime, releaseTime } from "../clock.ts";
import { collectAfter } from "./collector.ts";

/**
 * Everything that arrives in one turn of the event loop is handled together, after every ready socket has been read.
 * Otherwise the kernel's network code evicts ours from the processor's caches between two reads, and each message
 * pays for loading it again, which for small messages costs more than handling them (docs/decisions/015).
 */
export interface Recipient {
  received(bytes: Buffer): void;
  /** The connection is closed; nothing more arrives. */
  disconnected(error: Error | null): void;
  /** One of the methods above threw. */
  broke(error: unknown): void;
}

/** Beyond this the batch is handled early, so that it does not pile up in memory. */
const GATHERED_BYTES_MAX = 1024 * 1024;

/** Bytes, or the error (if any) that a connection ended with. */
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
  holdTime();
  try {
    for (let i = 0; i < to.length; i++) deliver(to[i]!, what[i]!);
    // Async functions that wait for nothing end within the turn: otherwise all they have is live when garbage is collected.
    drainMicrotasks();
  } finally {
    releaseTime();
  }
  collectAfter(to.length);
}

function deliver(recipient: Recipient, arrival: Arrival): void {
  try {
    if (arrival instanceof Uint8Array) recipient.received(arrival);
    else recipient.disconnected(arrival);
  } catch (error) {
    recipient.broke(error);
  }
}
