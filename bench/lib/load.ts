/**
 * The clients of every measurement, on raw sockets so that they cost as little as possible of the two cores.
 * Reads a `LoadPlan` from its standard input and prints a `LoadReport`.
 */
export interface LoadPlan {
  port: number;
  path: string;
  key: string;
  /** Used in turns, instead of `key`. */
  keys?: string[];
  /** More header lines, each with its line end. */
  headers?: string;
  body: string;
  /** Used in turns, instead of `body`, all with `key`. */
  bodies?: string[];
  connections: number;
  /** How many are sent in all, or for how long they are. */
  requests: number;
  durationMs?: number;
  /** How many begin in a second at most, at even distances; a request's time counts from when it was due. */
  perSecond?: number;
  stream: boolean;
  /** Of every three streams the first is read to its end and the others are left after this many events. */
  leaveAfterEvents?: number;
}

export interface LoadReport {
  requests: number;
  /** Answers other than 200, and connections that broke off. */
  errors: number;
  /** Streams that were left on purpose. */
  left: number;
  /** Events of streams. */
  /** Of the bodies of the requests that were begun. */
  sentBytes: number;
  events: number;
  /** Of these, the ones with text of the upstream. */
  tokens: number;
  seconds: number;
  p50Us: number;
  p99Us: number;
  /** Time to the first event, and the longest silence within a stream. */
  firstEventP50Ms: number;
  gapMaxMs: number;
  /** From when the upstream sent an event to its arrival. */
  delayP99Ms: number;
}

/** The upstream writes there when it sent an event, in microseconds. */
const SENT_AT = /"t(\d{16})"/g;

const CHUNKED_END = "0\r\n\r\n";

interface Connection {
  write(bytes: Uint8Array): number;
  end(): void;
  terminate(): void;
}

class Client {
  #headText = "";
  #bodyLeft: number | null = null;
  #startedAt = 0;
  #lastAt = 0;
  #eventsSeen = 0;
  /** What came of a stream after its last line's end. */
  #rest = "";
  #leaveAfterEvents = Number.POSITIVE_INFINITY;
  /** Whether an answer is due. */
  waiting = false;

  constructor(
    readonly run: Run,
    readonly socket: Connection,
  ) {}

  start(): void {
    const sequence = this.run.take();
    this.waiting = sequence !== null;
    if (sequence === null) {
      this.socket.end();
      return;
    }
    this.#headText = "";
    this.#bodyLeft = null;
    this.#eventsSeen = 0;
    this.#rest = "";
    const { leaveAfterEvents } = this.run.plan;
    this.#leaveAfterEvents =
      leaveAfterEvents !== undefined && sequence % 3 !== 0 ? leaveAfterEvents : Number.POSITIVE_INFINITY;
    const dueAt = this.run.dueAt(sequence);
    this.#startedAt = this.#lastAt = dueAt;
    const earlyMs = dueAt - performance.now();
    if (earlyMs > 1) setTimeout(() => this.#send(sequence), earlyMs);
    else this.#send(sequence);
  }

  #send(sequence: number): void {
    this.socket.write(this.run.requestOf(sequence));
  }

  data(bytes: Buffer): void {
    let text = bytes.toString("latin1");
    if (this.#bodyLeft === null) {
      this.#headText += text;
      const end = this.#headText.indexOf("\r\n\r\n");
      if (end === -1) return;
      const head = this.#headText.slice(0, end).toLowerCase();
      if (!head.startsWith("http/1.1 200")) this.run.errors++;
      const length = /content-length: (\d+)/.exec(head);
      this.#bodyLeft = length ? Number(length[1]) : Number.POSITIVE_INFINITY;
      text = this.#headText.slice(end + 4);
    }
    if (this.run.plan.stream) this.#events(text);
    this.#bodyLeft -= text.length;
    if (this.#eventsSeen >= this.#leaveAfterEvents) {
      this.waiting = false;
      this.run.left++;
      this.socket.terminate();
      return;
    }
    const ended =
      this.#bodyLeft === Number.POSITIVE_INFINITY ? text.endsWith(CHUNKED_END) : this.#bodyLeft <= 0;
    if (ended) {
      this.run.latencies.push(performance.now() - this.#startedAt);
      this.start();
    }
  }

  #events(arrived: string): void {
    const all = this.#rest + arrived;
    const end = all.lastIndexOf("\n") + 1;
    const text = all.slice(0, end);
    this.#rest = all.slice(end);
    let count = 0;
    for (let at = text.indexOf("data: "); at !== -1; at = text.indexOf("data: ", at + 6)) count++;
    if (count === 0) return;
    const now = performance.now();
    const epochMs = performance.timeOrigin + now;
    for (const [, sentUs] of text.matchAll(SENT_AT)) this.run.delays.push(epochMs - Number(sentUs) / 1_000);
    if (this.#eventsSeen === 0) this.run.firstEvents.push(now - this.#startedAt);
    else this.run.gapMaxMs = Math.max(this.run.gapMaxMs, now - this.#lastAt);
    this.#eventsSeen += count;
    this.#lastAt = now;
    this.run.events += count;
  }
}

class Run {
  readonly #requests: { bytes: Uint8Array; bodyLength: number }[];
  sentBytes = 0;
  readonly latencies: number[] = [];
  readonly firstEvents: number[] = [];
  readonly delays: number[] = [];
  errors = 0;
  left = 0;
  events = 0;
  gapMaxMs = 0;
  #taken = 0;
  readonly #beganAtMs = performance.now();
  readonly #endsAtMs: number;

  constructor(readonly plan: LoadPlan) {
    const { path, key, keys = [key], body, bodies, headers = "" } = plan;
    const { durationMs = Number.POSITIVE_INFINITY } = plan;
    this.#endsAtMs = this.#beganAtMs + durationMs;
    const requestOf = (by: string, content: string) => {
      const bodyLength = Buffer.byteLength(content);
      const head = `POST ${path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer ${by}\r\n${headers}`;
      const rest = `content-type: application/json\r\ncontent-length: ${bodyLength}\r\n\r\n${content}`;
      return { bytes: Buffer.from(head + rest), bodyLength };
    };
    this.#requests = bodies
      ? bodies.map((each) => requestOf(key, each))
      : keys.map((each) => requestOf(each, body));
  }

  /** When this request is to be sent: at its place in an even row, or now. */
  dueAt(sequence: number): number {
    const { perSecond } = this.plan;
    return perSecond === undefined ? performance.now() : this.#beganAtMs + (sequence * 1_000) / perSecond;
  }

  requestOf(sequence: number): Uint8Array {
    const { bytes, bodyLength } = this.#requests[sequence % this.#requests.length]!;
    this.sentBytes += bodyLength;
    return bytes;
  }

  get over(): boolean {
    return this.#taken >= this.plan.requests || performance.now() > this.#endsAtMs;
  }

  /** The number of the next request, or null when there is none. */
  take(): number | null {
    return this.over ? null : this.#taken++;
  }

  /** One connection at a time, a new one after each that did not survive its request. */
  async lane(): Promise<void> {
    while (!this.over) await this.#connection();
  }

  #connection(): Promise<void> {
    return new Promise((resolve, reject) => {
      let client: Client;
      Bun.connect({
        hostname: "127.0.0.1",
        port: this.plan.port,
        socket: {
          open: (socket) => {
            client = new Client(this, socket);
            client.start();
          },
          data: (_, bytes) => client.data(bytes),
          close: () => {
            if (client.waiting) this.errors++;
            resolve();
          },
          error: (_, error) => reject(error),
        },
      }).catch(reject);
    });
  }
}

export const quantile = (sorted: readonly number[], q: number) =>
  sorted[Math.floor((sorted.length - 1) * q)] ?? 0;
const ascending = (a: number, b: number) => a - b;

async function load(plan: LoadPlan): Promise<LoadReport> {
  const run = new Run(plan);
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: plan.connections }, () => run.lane()));
  const latencies = run.latencies.sort(ascending);
  return {
    requests: latencies.length,
    errors: run.errors,
    left: run.left,
    sentBytes: run.sentBytes,
    events: run.events,
    tokens: run.delays.length,
    seconds: (performance.now() - startedAt) / 1000,
    p50Us: quantile(latencies, 0.5) * 1000,
    p99Us: quantile(latencies, 0.99) * 1000,
    firstEventP50Ms: quantile(run.firstEvents.sort(ascending), 0.5),
    gapMaxMs: run.gapMaxMs,
    delayP99Ms: quantile(run.delays.sort(ascending), 0.99),
  };
}

if (import.meta.main) console.log(JSON.stringify(await load(await Bun.stdin.json())));
