/** Watches from another process how long a gateway's event loop is kept from everyone else. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./until.ts";

/** Milliseconds of wall time and of processor time of the main thread, and turns of the gauge's timer. */
const FIGURES = 3;

export class Stalls {
  readonly preload = join(import.meta.dir, "stall-gauge.ts");
  readonly env: { STALL_FILE: string };
  readonly #folder = mkdtempSync(join(tmpdir(), "stalls-"));
  readonly #told: Float64Array;

  constructor() {
    const file = join(this.#folder, "told");
    writeFileSync(file, new Float64Array(FIGURES));
    this.env = { STALL_FILE: file };
    this.#told = new Float64Array(Bun.mmap(file).buffer);
  }

  /** The longest stall while this ran, and until the event loop had nothing of it left to do. */
  async during(run: () => Promise<unknown>): Promise<{ wallMs: number; cpuMs: number }> {
    this.#told.fill(0);
    await run();
    const ticks = this.#told[2]!;
    await until("the gauge has seen the end of it", () => this.#told[2]! > ticks + 1);
    return { wallMs: this.#told[0]!, cpuMs: this.#told[1]! };
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
