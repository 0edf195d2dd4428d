/** A vendor's own account of what each request costs; deliberately not the gateway's arithmetic. */

/** USD per million tokens. */
export interface Rates {
  input: number;
  cached: number;
  write5m?: number;
  write1h?: number;
  output: number;
  /** For the whole request, when its prompt is longer than this. */
  above?: { promptTokens: number; rates: Rates };
}

/** Tokens, each counted once. */
export interface BilledTokens {
  fresh: number;
  cached: number;
  write5m: number;
  write1h: number;
  /** Thinking included. */
  output: number;
}

export interface BillLine extends BilledTokens {
  id: string;
  model: string;
  nanoUsd: number;
}

const PICO_USD_PER_TOKEN = 1e6;

function nanoUsd(rates: Rates, tokens: BilledTokens): number {
  const prompt = tokens.fresh + tokens.cached + tokens.write5m + tokens.write1h;
  const { above } = rates;
  const at = above && prompt > above.promptTokens ? above.rates : rates;
  const parts: [number, number][] = [
    [tokens.fresh, at.input],
    [tokens.cached, at.cached],
    [tokens.write5m, at.write5m ?? at.input],
    [tokens.write1h, at.write1h ?? at.input],
    [tokens.output, at.output],
  ];
  const pico = parts.reduce(
    (sum, [count, usd]) => sum + BigInt(count) * BigInt(Math.round(usd * PICO_USD_PER_TOKEN)),
    0n,
  );
  return Number((pico + 500n) / 1000n);
}

export class Bill {
  readonly lines: BillLine[] = [];

  add(line: Omit<BillLine, "nanoUsd">, rates: Rates): void {
    this.lines.push({ ...line, nanoUsd: nanoUsd(rates, line) });
  }

  get nanoUsd(): number {
    return this.lines.reduce((sum, line) => sum + line.nanoUsd, 0);
  }
}
