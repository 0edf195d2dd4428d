/** A recording of a page: the pictures that it draws, as Motion JPEG in an AVI file, which needs no encoder. */
import { closeSync, openSync, writeSync } from "node:fs";
import type { Page } from "./page.ts";

const framesPerSecond = 10;
const secondsMax = 600;

const chunk = (name: string, data: Buffer) => {
  const head = Buffer.alloc(8);
  head.write(name);
  head.writeUInt32LE(data.length, 4);
  return Buffer.concat([head, data, Buffer.alloc(data.length % 2)]);
};
const list = (name: string, ...parts: Buffer[]) =>
  chunk("LIST", Buffer.concat([Buffer.from(name), ...parts]));
const numbers = (...values: number[]) => Buffer.from(Uint32Array.from(values).buffer);

/** Everything before the pictures; its size does not depend on how many there are. */
function header(width: number, height: number, frames: number): Buffer {
  const hasIndex = 0x10;
  const frameUs = 1_000_000 / framesPerSecond;
  const avih = numbers(frameUs, 0, 0, hasIndex, frames, 0, 1, 0, width, height, 0, 0, 0, 0);
  const kind = Buffer.from("vidsMJPG");
  const strh = Buffer.concat([kind, numbers(0, 0, 0, 1, framesPerSecond, 0, frames, 0, 0xffffffff, 0, 0, 0)]);
  const planesAndBits = 1 + (24 << 16);
  const mjpg = Buffer.from("MJPG").readUInt32LE();
  const strf = numbers(40, width, height, planesAndBits, mjpg, width * height * 3, 0, 0, 0, 0);
  return list("hdrl", chunk("avih", avih), list("strl", chunk("strh", strh), chunk("strf", strf)));
}

export class Recording {
  readonly path: string;
  readonly #page: Page;
  readonly #file: number;
  readonly #off: () => void;
  readonly #index: Buffer[] = [];
  #size = { width: 0, height: 0 };
  #last: Buffer | null = null;
  #moviBytes = 4;
  readonly #startMs = performance.now();

  constructor(page: Page, path: string, { width, height }: { width: number; height: number }) {
    this.#page = page;
    this.path = path;
    this.#size = { width, height };
    this.#file = openSync(path, "w", 0o600);
    writeSync(this.#file, this.#head());
    this.#off = page.session.on("Page.screencastFrame", ({ data, sessionId }) => {
      page.session.tell("Page.screencastFrameAck", { sessionId });
      this.#fill();
      this.#last = chunk("00dc", Buffer.from(data, "base64"));
    });
    page.session.tell("Page.startScreencast", {
      format: "jpeg",
      quality: 70,
      maxWidth: width,
      maxHeight: height,
    });
  }

  #head(): Buffer {
    const { width, height } = this.#size;
    const hdrl = header(width, height, this.#index.length);
    const movi = numbers(0, this.#moviBytes);
    movi.write("LIST");
    const bytes = 4 + hdrl.length + movi.length + this.#moviBytes + 8 + this.#index.length * 16;
    const riff = numbers(0, bytes);
    riff.write("RIFF");
    return Buffer.concat([riff, Buffer.from("AVI "), hdrl, movi, Buffer.from("movi")]);
  }

  /** The last picture holds until now. */
  #fill(): void {
    const due = Math.min(secondsMax, (performance.now() - this.#startMs) / 1_000) * framesPerSecond;
    while (this.#last && this.#index.length < due) {
      const entry = numbers(0, 0x10, this.#moviBytes, this.#last.readUInt32LE(4));
      entry.write("00dc");
      this.#index.push(entry);
      this.#moviBytes += writeSync(this.#file, this.#last);
    }
  }

  /** Ends it; the file is whole then. Returns how many seconds it has. */
  end(): number {
    this.#off();
    if (!this.#page.closed) this.#page.session.tell("Page.stopScreencast");
    this.#fill();
    writeSync(this.#file, chunk("idx1", Buffer.concat(this.#index)));
    const head = this.#head();
    writeSync(this.#file, head, 0, head.length, 0);
    closeSync(this.#file);
    return this.#index.length / framesPerSecond;
  }
}
