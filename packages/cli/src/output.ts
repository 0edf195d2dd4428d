import { asCalled } from "./called.ts";

export interface OutputOptions {
  json: boolean;
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
}

const BAR_WIDTH = 24;

const STYLES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33 } as const;
export type Style = keyof typeof STYLES;

/** What a state is worth: the words of every table, so that the same word has the same colour everywhere. */
const COLOURS: Record<string, Style> = {
  serving: "green",
  active: "green",
  online: "green",
  yes: "green",
  ok: "green",
  "serving, with trouble": "yellow",
  warning: "yellow",
  refused: "yellow",
  left: "yellow",
  "not answering": "red",
  failed: "red",
  FAILED: "red",
  revoked: "dim",
  disabled: "dim",
  offline: "dim",
  no: "dim",
};

/** https://no-color.org, and FORCE_COLOR for pipes that end on a terminal. */
function isColoured(stream: NodeJS.WriteStream, env: Readonly<Record<string, string | undefined>>): boolean {
  if (env.NO_COLOR) return false;
  return Boolean(stream.isTTY) || (env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== "0");
}

const NUMBER = /^[-+]?\$?\d[\d,.]*( ?(%|ms|s))?$/;
/** Stands for a number that there is none of. */
const NO_NUMBER = new Set(["", "unpriced", "not billed", "-"]);

/** Numbers stand under each other by their last digit. */
const isNumeric = (cells: readonly string[]): boolean =>
  cells.some((cell) => NUMBER.test(cell)) && cells.every((cell) => NUMBER.test(cell) || NO_NUMBER.has(cell));

/** Names come from other people; what would move the cursor or change its colour is not printed. */
export const plain = (text: string) => text.replace(/\p{Cc}/gu, "\ufffd");

const GAP = 2;
const CELL_WIDTH_MIN = 12;
/** What is copied into the next command must not be cut. */
const WHOLE = new Set(["id", "key", "model", "url", "address"]);

const clipped = (text: string, width: number) =>
  text.length <= width ? text : `${text.slice(0, width - 1)}…`;

/** Widths that fit a terminal where they can: the widest column gives way first. */
function fitted(heads: readonly string[], natural: readonly number[], columns: number | undefined): number[] {
  const widths = [...natural];
  const gives = (i: number) =>
    !WHOLE.has(heads[i]!) && widths[i]! > Math.max(CELL_WIDTH_MIN, heads[i]!.length);
  for (;;) {
    const total = widths.reduce((sum, width) => sum + width + GAP, -GAP);
    const widest = widths.reduce(
      (best, width, i) => (gives(i) && width > (widths[best] ?? 0) ? i : best),
      -1,
    );
    if (!columns || total <= columns) return widths;
    // If it would wrap even after cutting, nothing is cut.
    if (widest < 0) return [...natural];
    widths[widest]!--;
  }
}

/** What a command says: JSON for programs, tables and sentences for people. */
export class Output {
  readonly json: boolean;
  constructor(readonly options: OutputOptions) {
    this.json = options.json;
  }

  /** In colour where people look at it; plain for programs. */
  paint(style: Style, text: string, stream: "stdout" | "stderr" = "stdout"): string {
    return isColoured(this.options[stream], process.env) ? `\x1b[${STYLES[style]}m${text}\x1b[0m` : text;
  }

  /** A state in its colour. */
  state(word: string, text = word): string {
    const style = COLOURS[word];
    return style ? this.paint(style, text) : text;
  }

  get isTerminal(): boolean {
    return Boolean(this.options.stdout.isTTY);
  }

  /** The command's result: the whole of it as JSON, or `lines` for people. */
  result(value: unknown, lines: () => string | readonly string[]): void {
    if (this.json) this.write(`${JSON.stringify(value, null, 2)}\n`);
    else this.write(`${[lines()].flat().join("\n")}\n`);
  }

  /** Rows as aligned columns. */
  table(
    rows: readonly Record<string, unknown>[],
    columns: Record<string, (row: never) => string>,
    empty: string,
  ): void {
    if (this.json || rows.length === 0) {
      this.result(rows, () => asCalled(empty));
      return;
    }
    const heads = Object.keys(columns);
    const cells = rows.map((row) => heads.map((head) => plain(columns[head]!(row as never))));
    const natural = heads.map((head, i) => Math.max(head.length, ...cells.map((line) => line[i]!.length)));
    const widths = fitted(heads, natural, this.isTerminal ? this.options.stdout.columns : undefined);
    const numeric = heads.map((_, i) => isNumeric(cells.map((line) => line[i]!)));
    const padded = (part: string, i: number) => {
      const shown = clipped(part, widths[i]!);
      return numeric[i] ? shown.padStart(widths[i]!) : shown.padEnd(widths[i]!);
    };
    const line = (parts: readonly string[], style: (part: string, padded: string) => string) =>
      parts
        .map((part, i) => style(part, i === parts.length - 1 ? padded(part, i).trimEnd() : padded(part, i)))
        .join(" ".repeat(GAP));
    const head = this.paint("bold", line(heads, (_, text) => text).trimEnd());
    const body = cells.map((parts) => line(parts, (part, text) => this.state(part, text)).trimEnd());
    this.write(`${[head, ...body].join("\n")}\n`);
  }

  write(text: string): void {
    this.options.stdout.write(text);
  }

  /** A remark for people, on stderr; never part of the result. */
  note(text: string): void {
    if (!this.json) this.options.stderr.write(`${asCalled(text)}\n`);
  }

  /** A bar on a terminal, plain lines elsewhere; `share` is 0 to 1. */
  progress(label: string, share: number): void {
    if (this.json) return;
    const percent = `${Math.round(share * 100)}%`;
    if (!this.options.stderr.isTTY) {
      this.options.stderr.write(`${label} ${percent}\n`);
      return;
    }
    const filled = Math.round(share * BAR_WIDTH);
    this.options.stderr.write(
      `\r\x1b[K${"█".repeat(filled)}${"░".repeat(BAR_WIDTH - filled)} ${percent.padStart(4)} ${label}`,
    );
    if (share >= 1) this.options.stderr.write("\n");
  }
}
