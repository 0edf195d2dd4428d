/** A network between two programs: a TCP proxy that can break in the ways networks do, and reorders nothing. */
import { connect, createServer, type Socket } from "node:net";

/**
 * pass: as if it were not there.
 * stall: connections stay open and nothing moves; what was sent arrives afterwards.
 * slow: at most `bytesPerSecond` on each connection, each way.
 */
export type LineMode = "pass" | "stall" | "slow";

export interface LineOptions {
  targetPort: number;
  /** Of a slow line. */
  bytesPerSecond?: number;
}

/** One direction of a connection. */
class Way {
  #timer: Timer | null = null;
  isLost = false;

  constructor(
    readonly line: Line,
    readonly from: Socket,
    readonly to: Socket,
  ) {
    from.on("data", (bytes: Buffer) => this.#carry(bytes));
    to.on("drain", () => this.settle());
    from.on("end", () => {
      if (!this.isLost) to.end();
    });
    this.settle();
  }

  #carry(bytes: Buffer): void {
    if (this.isLost) return;
    const isTaken = this.to.write(bytes);
    if (this.line.mode === "slow") {
      this.from.pause();
      const waitMs = (bytes.length / this.line.bytesPerSecond) * 1_000;
      this.#timer = setTimeout(() => {
        this.#timer = null;
        this.settle();
      }, waitMs);
    } else if (!isTaken) this.from.pause();
  }

  /** Lets it flow or stand, as the line is now. */
  settle(): void {
    const isStanding = this.line.mode === "stall" || this.#timer !== null || this.to.writableNeedDrain;
    if (isStanding) this.from.pause();
    else this.from.resume();
  }

  end(): void {
    if (this.#timer) clearTimeout(this.#timer);
  }
}

interface Pair {
  near: Socket;
  far: Socket;
  ways: readonly [Way, Way];
}

export class Line {
  readonly #pairs = new Set<Pair>();
  readonly #server = createServer({ allowHalfOpen: true }, (near) => this.#accept(near));
  /** Where new connections go; a program that starts again may have another port. */
  targetPort: number;
  readonly bytesPerSecond: number;
  mode: LineMode = "pass";
  port = 0;

  private constructor({ targetPort, bytesPerSecond = 10_000 }: LineOptions) {
    this.targetPort = targetPort;
    this.bytesPerSecond = bytesPerSecond;
  }

  static async open(options: LineOptions): Promise<Line> {
    const line = new Line(options);
    await new Promise<void>((resolve) => line.#server.listen(0, "127.0.0.1", resolve));
    const address = line.#server.address();
    line.port = address && typeof address === "object" ? address.port : 0;
    return line;
  }

  /** The same URL, by way of this line. */
  static async to(url: string): Promise<{ line: Line; url: string }> {
    const target = new URL(url);
    const line = await Line.open({ targetPort: Number(target.port) });
    target.host = `127.0.0.1:${line.port}`;
    return { line, url: target.href };
  }

  get connectionCount(): number {
    return this.#pairs.size;
  }

  #accept(near: Socket): void {
    const far = connect({ port: this.targetPort, host: "127.0.0.1", allowHalfOpen: true });
    const pair: Pair = { near, far, ways: [new Way(this, near, far), new Way(this, far, near)] };
    this.#pairs.add(pair);
    for (const socket of [near, far]) {
      socket.setNoDelay(true);
      socket.on("error", () => this.#reset(pair));
      socket.on("close", () => this.#reset(pair));
    }
  }

  #reset(pair: Pair): void {
    if (!this.#pairs.delete(pair)) return;
    for (const way of pair.ways) way.end();
    for (const socket of [pair.near, pair.far]) socket.resetAndDestroy();
  }

  set(mode: LineMode): void {
    this.mode = mode;
    for (const { ways } of this.#pairs) for (const way of ways) way.settle();
  }

  /** Half-open: what is sent on the connections that are open now is lost and nobody is told; new ones work. */
  halfOpen(): void {
    for (const { ways } of this.#pairs) for (const way of ways) way.isLost = true;
  }

  /** Ends the half-open connections as a network does in the end: with a reset. */
  resetHalfOpen(): void {
    for (const pair of this.#pairs) if (pair.ways[0].isLost) this.#reset(pair);
  }

  /** Resets every connection that is open now; new ones work. */
  cut(): void {
    for (const pair of this.#pairs) this.#reset(pair);
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}
