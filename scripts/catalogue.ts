/**
 * `bun scripts/catalogue.ts <model_prices_and_context_window.json> --date 2026-08-08 [--source …]`
 *
 * Makes the built-in prices (rooms/billing/catalogue.json) from LiteLLM's price list: models that their makers sell,
 * and Bedrock's, at list price. What is newer than the list is in newer-prices.ts, and goes before it.
 */
import "./lib/help.ts";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ListedPrice, readPriceList } from "@model-gateway/client";
import { parseArgs } from "./lib/args.ts";
import { NEWER_PRICES } from "./lib/newer-prices.ts";

type Price = (typeof NEWER_PRICES)[number];

const OUT = join(import.meta.dir, "../packages/gateway/src/rooms/billing/catalogue.json");
const MAKERS = new Set([
  ...["openai", "anthropic", "gemini", "mistral", "xai", "deepseek", "cohere", "cohere_chat", "moonshot"],
  ...["zai", "minimax", "dashscope", "perplexity", "voyage", "ai21", "amazon_nova", "bedrock_converse"],
]);
const MODES = new Set(["chat", "responses", "embedding", "realtime"]);
/** Weights that people run themselves: a price by name would be charged for their own machines. */
const OPEN_WEIGHTS =
  /(^|\/)(open-|gemma|gemini-gemma|codellama|llama|mixtral|mistral-(7b|small$|small-3)|gpt-oss|qwen3-|qwq|pplx-\d|deepseek-(r1|v3|coder)|devstral-small|magistral-small|ministral|pixtral-12b|command-|glm-4-|grok-2)/;
/** A name that is part of others' names says too little. */
const isTelling = (match: string) => match.includes("-") && match.length >= 5;
const DATED = /[-@](\d{4}-\d{2}-\d{2}|\d{6,8}|\d{4}|001|latest)(-v\d(:\d)?)?$/;

/** Speech has rates of its own, several times those of text: how much of each comes is not known in advance. */
function spoken(price: Price): Price {
  const { match, input = 0, output = 0, audio_input = 0, audio_output = 0, ...rest } = price;
  const { max_output_tokens, context_window } = rest;
  const dearest = { input: Math.max(input, audio_input), output: Math.max(output, audio_output) };
  return { match, ...dearest, max_output_tokens, context_window };
}

function toPrice({ provider, model, mode, price }: ListedPrice): Price {
  const { input_usd, output_usd, parts, max_output_tokens, context_window } = price;
  // OpenAI's list has what a prompt may be beside what an answer may be; the others' has both together.
  const beside = provider === "openai" && mode !== "embedding" ? (max_output_tokens ?? 0) : 0;
  const whole: Price = {
    match: model.toLowerCase(),
    input: input_usd,
    output: output_usd,
    ...parts,
    max_output_tokens: mode === "embedding" ? undefined : max_output_tokens,
    context_window: context_window && context_window + beside,
  };
  return mode === "realtime" ? spoken(whole) : whole;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    date: { type: "string", default: new Date().toISOString().slice(0, 10) },
    source: { type: "string", default: "github.com/BerriAI/litellm, model_prices_and_context_window.json" },
  },
});
const { prices: listed } = readPriceList(JSON.parse(readFileSync(positionals[0] ?? "", "utf8")));
const known = new Map(NEWER_PRICES.map((price) => [price.match, price]));
/** Of a name that a newer one begins with, such as opus-5 of opus-5-5, behind a prefix: the longer match would win. */
const isOutgrown = (match: string) => {
  const name = match.slice(match.lastIndexOf(".") + 1);
  return name !== match && NEWER_PRICES.some((newer) => newer.match.startsWith(`${name}-`));
};
const today = new Date().toISOString();
for (const entry of listed) {
  const { provider, mode, ends, price } = entry;
  if (!MAKERS.has(provider) || !MODES.has(mode ?? "") || (ends && ends < today)) continue;
  if (price.input_usd === undefined || (price.input_usd === 0 && price.output_usd === 0)) continue;
  const row = toPrice(entry);
  if (!isTelling(row.match) || OPEN_WEIGHTS.test(row.match) || isOutgrown(row.match)) continue;
  if (known.has(row.match)) continue;
  known.set(row.match, row);
}
const isSame = (a: Price, b: Price) =>
  JSON.stringify({ ...a, match: "" }) === JSON.stringify({ ...b, match: "" });
const newer = new Set(NEWER_PRICES.map(({ match }) => match));
/** A dated name that costs what its plain name does, or whose plain name has a newer price, is left to it. */
const isCovered = (price: Price) => {
  const plain = price.match.replace(DATED, "");
  const of = plain === price.match ? undefined : known.get(plain);
  return of !== undefined && (newer.has(plain) || isSame(of, price));
};
const prices = [...known.values()]
  .filter((price) => !isCovered(price))
  .sort((a, b) => (a.match < b.match ? -1 : 1));
const lines = prices.map((price) => `    ${JSON.stringify(price)}`).join(",\n");
const { source, date } = values;
writeFileSync(
  OUT,
  `{\n  "source": ${JSON.stringify(source)},\n  "date": "${date}",\n  "prices": [\n${lines}\n  ]\n}\n`,
);
console.log(`wrote ${prices.length} prices, ${newer.size} of them newer than the list, to ${OUT}`);
