import { type Figure, format, type Measured, type Results } from "../lib/figures.ts";

/** The figures of a run by name. */
export class Lookup {
  readonly #byName: Map<string, Figure>;

  constructor(readonly results: Results) {
    this.#byName = new Map(results.figures.map((figure) => [figure.name, figure]));
  }

  /** Figures of these groups, in the order in which they were taken. */
  of(...groups: string[]): Figure[] {
    return this.results.figures.filter(({ group }) => groups.includes(group));
  }

  /** NaN when it was not measured. */
  value(name: string, measured: Measured = "gateway"): number {
    return this.#byName.get(name)?.values[measured] ?? Number.NaN;
  }

  shown(name: string, measured: Measured = "gateway"): string {
    const figure = this.#byName.get(name);
    return figure ? cell(figure, measured) : "";
  }
}

export const cell = ({ unit, values }: Figure, measured: Measured): string =>
  values[measured] === undefined ? "" : `${format(values[measured])} ${unit}`.trim();

export const markdownTable = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");

export const times = (ratio: number): string => (Number.isFinite(ratio) ? `${ratio.toFixed(2)} x` : "");
