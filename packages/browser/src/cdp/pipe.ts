/** The pipe to a Chromium started with --remote-debugging-pipe: JSON messages, each ended by a NUL byte. */

import type { Readable, Writable } from "node:stream";
import type { CdpMessage, CdpRequest, EngineTransport } from "../engines/contract.ts";

/** A message larger than this cannot be anything the tool asked for; the link is closed instead of growing its buffer. */
const messageBytesMax = 256 * 1024 * 1024;

/** How long after its pipe a browser's process may take to end; what it says then is the better reason. */
const exitMsMax = 5_000;

export interface PipeEnds {
  toBrowser: Writable;
  fromBrowser: Readable;
  /** Ends the browser process; called once by close(). */
  endProcess: () => Promise<void>;
}

export class PipeTransport implements EngineTransport {
  onMessage: (message: CdpMessage) => void = () => {};
  onClose: (reason: string) => void = () => {};
  readonly #ends: PipeEnds;
  #parts: Buffer[] = [];
  #partsBytes = 0;
  #closed = false;

  constructor(ends: PipeEnds) {
    this.#ends = ends;
    ends.fromBrowser.on("data", (chunk: Buffer) => this.#receive(chunk));
    ends.fromBrowser.on("close", () => this.#endSoon("the browser closed its debugging pipe"));
    ends.fromBrowser.on("error", (error) =>
      this.#endSoon(`reading from the browser failed: ${error.message}`),
    );
    ends.toBrowser.on("error", (error) => this.#endSoon(`writing to the browser failed: ${error.message}`));
  }

  send(message: CdpRequest): void {
    if (!this.#closed) this.#ends.toBrowser.write(`${JSON.stringify(message)}\0`);
  }

  async close(): Promise<void> {
    this.end("the tool closed the browser");
    await this.#ends.endProcess();
  }

  #receive(chunk: Buffer): void {
    // Data after the end may be the rest of a message whose beginning was dropped.
    if (this.#closed) return;
    let start = 0;
    let end = chunk.indexOf(0);
    while (end !== -1) {
      this.#parts.push(chunk.subarray(start, end));
      const text =
        this.#parts.length === 1 ? this.#parts[0]!.toString() : Buffer.concat(this.#parts).toString();
      this.#parts = [];
      this.#partsBytes = 0;
      this.onMessage(JSON.parse(text) as CdpMessage);
      if (this.#closed) return;
      start = end + 1;
      end = chunk.indexOf(0, start);
    }
    if (start < chunk.length) {
      this.#parts.push(chunk.subarray(start));
      this.#partsBytes += chunk.length - start;
      if (this.#partsBytes > messageBytesMax) this.end("the browser sent an oversized message");
    }
  }

  /** The exit of the process, which usually follows at once, gives a better reason. */
  #endSoon(reason: string): void {
    setTimeout(() => this.end(reason), exitMsMax).unref();
  }

  /** Called by the launcher too, when the process exits before the pipe tells. */
  end(reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts = [];
    this.onClose(reason);
  }
}
