import { readFileSync, statSync } from "node:fs";
import { z } from "zod";
import { describeIssues } from "../../kernel/validate.ts";
import type { Needs } from "../foundation.ts";
import { Price, requireRates, UNIT_RATES } from "./price-schema.ts";

const FILE_BYTES_MAX = 1024 * 1024;
const PRICES_MAX = 10_000;
const CHECK_EVERY_MS = 2_000;

const UNIT_NAMES = UNIT_RATES.map((name) => `\`${name}\``).join(", ");
const PricingFile = z.strictObject({
  prices: z
    .array(Price.superRefine(requireRates("", `give \`input\` and \`output\`, or one of ${UNIT_NAMES}`)))
    .max(PRICES_MAX)
    .default([]),
  usd_per: z
    .record(
      z.string().regex(/^[A-Za-z]{3,8}$/, "keys are currencies, such as JPY"),
      z.number().positive().max(1e6),
    )
    .default({}),
});

export type OperatorPrices = ReturnType<typeof readPricingFile>;

/** Throws an error that names the file and the field. */
export function readPricingFile(path: string) {
  const problem = (what: string): never => {
    throw new Error(`the pricing file ${path} ${what}`);
  };
  let text: string;
  try {
    if (statSync(path).size > FILE_BYTES_MAX) problem(`is larger than ${FILE_BYTES_MAX} bytes`);
    text = readFileSync(path, "utf8");
  } catch (error) {
    return problem(`cannot be read: ${(error as Error).message}`);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    return problem(`is not JSON: ${(error as Error).message}`);
  }
  const parsed = PricingFile.safeParse(json);
  if (!parsed.success)
    return problem(
      `does not have the form {"prices": [{"match", "input"?, "output"?, "cached_input"?, "cache_write"?, "cache_write_1h"?, "reasoning"?, "audio_input"?, "audio_output"?, "image_input"?, "image_output"?, "long_prompts"?, "batch"?, "per_call"?, "per_image"?, "per_second"?, "per_million_characters"?, "max_output_tokens"?, "context_window"?}], "usd_per"?: {"EUR": 1.1}}: ${describeIssues(parsed.error)}`,
    );
  const seen = new Set<string>();
  for (const { match } of parsed.data.prices) {
    const id = match.toLowerCase();
    if (seen.has(id)) problem(`has two prices for "${id}"; keep one`);
    seen.add(id);
  }
  const { prices, usd_per } = parsed.data;
  /** Exchange rates by currency code in capitals: dollars for one unit. */
  const usdPer = new Map(Object.entries(usd_per).map(([code, usd]) => [code.toUpperCase(), usd]));
  return { prices, usdPer };
}

/** Changes with every rewrite, also when an editor or a mounted volume replaces the file. */
function stamp(path: string): string {
  try {
    const { mtimeMs, size, ino } = statSync(path);
    return `${mtimeMs}:${size}:${ino}`;
  } catch {
    return "absent";
  }
}

interface WatchOptions extends Needs<"clock" | "log"> {
  path: string;
  onChange: (operator: OperatorPrices) => void;
}

/** Polls, because file notifications miss replaced symlinks. An invalid file changes nothing. */
export function watchPricingFile({ path, clock, log, onChange }: WatchOptions): () => void {
  let last = stamp(path);
  return clock.every(CHECK_EVERY_MS, () => {
    const now = stamp(path);
    if (now === last) return;
    last = now;
    try {
      const operator = readPricingFile(path);
      onChange(operator);
      log.info("pricing file reloaded", { path, prices: operator.prices.length });
    } catch (error) {
      const reason = (error as Error).message;
      log.error("pricing file reload failed; keeping the previous prices", { path, reason });
    }
  });
}
