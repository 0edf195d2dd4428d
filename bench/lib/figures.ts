import type { Peer } from "./targets.ts";

export type Unit = "µs" | "ms" | "KB" | "MB" | "%" | "";
/**
 * A peer, the bare proxy once more (what it differs by is the noise of the run), the upstream without anything
 * between, the gateway with a node's tunnel behind it or paid in points, or one of the servers that instances share.
 */
export type Measured = Peer | "bareAgain" | "direct" | "tunnel" | "points" | "postgres" | "redis";

/** One line of the table: the same thing measured on everything that can do it. */
export interface Figure {
  group: string;
  name: string;
  unit: Unit;
  /** Medians of the rounds. */
  values: Partial<Record<Measured, number>>;
  rounds: Partial<Record<Measured, number[]>>;
}

export interface Results {
  takenAt: string;
  quick: boolean;
  machine: { cpu: string; cores: number; bun: string; loadBefore: number; loadAfter: number };
  /** Peers that could not be measured, each with the reason. */
  missing: string[];
  figures: Figure[];
}

export const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

/** Collects what the rounds find, and makes figures of it. */
export class Samples {
  readonly #figures = new Map<string, Figure>();

  constructor(readonly group: string) {}

  add(measured: Measured, name: string, unit: Unit, value: number): void {
    let figure = this.#figures.get(name);
    if (!figure) {
      figure = { group: this.group, name, unit, values: {}, rounds: {} };
      this.#figures.set(name, figure);
    }
    const rounds = [...(figure.rounds[measured] ?? []), value];
    figure.rounds[measured] = rounds;
    figure.values[measured] = median(rounds);
  }

  get figures(): Figure[] {
    return [...this.#figures.values()];
  }
}

const DIGITS = 3;

/** Three significant digits, with separators for thousands. */
export const format = (value: number): string =>
  value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 4 : DIGITS });
