/**
 * The clients of every measurement, on raw sockets so that they cost as little as possible of the two cores.
 * Reads a `LoadPlan` from its first argument and prints a `LoadReport`.
 */
export interface LoadPlan {
  port: number;
  path: string;
  key: string;
  body: string;
  connections: number;
  requests: number;
  stream: boolean;
}

export interface LoadReport {
  requests: number;
  errors: number;
  /** Events of streams. */
  events: number;
  seconds: number;
  p50Us: number;
  p99Us: number;
  /** Time to the first event, and the longest silence within a stream. */
  firstEventP50Ms: number;
  gapMaxMs: number;
}

const CHUNKED_END = "0\r\n\r\n";

class Client {
  #headText = "";
  #bodyLeft: number | null = null;
  #startedAt = 0;
  #lastAt = 0;
  #sawEvent = false;

  constructor(
    readonly run: Run,
    readonly socket: { write(bytes: Uint8Array): number; end(): void },
  ) {}

  start(): void {
    if (!this.run.take()) {
      this.socket.end();
      return;
    }
    this.#headText = "";
    this.#bodyLeft = null;
    this.#sawEvent = false;
    this.#startedAt = this.#lastAt = performance.now();
    this.socket.write(this.run.request);
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
    const ended =
      this.#bodyLeft === Number.POSITIVE_INFINITY ? text.endsWith(CHUNKED_END) : this.#bodyLeft <= 0;
    if (ended) {
      this.run.finish(performance.now() - this.#startedAt);
      this.start();
    }
  }

  #events(text: string): void {
    let count = 0;
    for (let at = text.indexOf("data: "); at !== -1; at = text.indexOf("data: ", at + 6)) count++;
    if (count === 0) return;
    const now = performance.now();
    if (!this.#sawEvent) this.run.firstEvents.push(now - this.#startedAt);
    else this.run.gapMaxMs = Math.max(this.run.gapMaxMs, now - this.#lastAt);
    this.#sawEvent = true;
    this.#lastAt = now;
    this.run.events += count;
  }
}

class Run {
  readonly request: Uint8Array;
  readonly latencies: number[] = [];
  readonly firstEvents: number[] = [];
  errors = 0;
  events = 0;
  gapMaxMs = 0;
  #left: number;

  constructor(readonly plan: LoadPlan) {
    const { path, key, body } = plan;
    this.#left = plan.requests;
    this.request = Buffer.from(
      `POST ${path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  }
  take(): boolean {
    return this.#left-- > 0;
  }
  finish(ms: number): void {
    this.latencies.push(ms);
  }
}

const quantile = (sorted: readonly number[], q: number) => sorted[Math.floor((sorted.length - 1) * q)] ?? 0;

async function load(plan: LoadPlan): Promise<LoadReport> {
  const run = new Run(plan);
  const startedAt = performance.now();
  await Promise.all(
    Array.from(
      { length: plan.connections },
      () =>
        new Promise<void>((resolve, reject) => {
          let client: Client;
          Bun.connect({
            hostname: "127.0.0.1",
            port: plan.port,
            socket: {
              open(socket) {
                client = new Client(run, socket);
                client.start();
              },
              data: (_, bytes) => client.data(bytes),
              close: () => resolve(),
              error: (_, error) => reject(error),
            },
          }).catch(reject);
        }),
    ),
  );
  const latencies = run.latencies.sort((a, b) => a - b);
  return {
    requests: latencies.length,
    errors: run.errors,
    events: run.events,
    seconds: (performance.now() - startedAt) / 1000,
    p50Us: quantile(latencies, 0.5) * 1000,
    p99Us: quantile(latencies, 0.99) * 1000,
    firstEventP50Ms: quantile(
      run.firstEvents.sort((a, b) => a - b),
      0.5,
    ),
    gapMaxMs: run.gapMaxMs,
  };
}

if (import.meta.main) console.log(JSON.stringify(await load(JSON.parse(process.argv[2]!))));
