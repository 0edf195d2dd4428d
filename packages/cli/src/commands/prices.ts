import { existsSync, readFileSync } from "node:fs";
import {
  type Client,
  type PriceChange,
  type PriceList,
  priceChanges,
  type Result,
  readPriceList,
} from "@model-gateway/client";
import { act, CliError, type Command, type Invocation, needed, text, UsageError } from "../command.ts";
import { ask } from "../prompt.ts";

type ModelPrice = Result<"billing.prices.list">[number];

const FETCH_MS = 30_000;
const LIST_BYTES_MAX = 32 * 1024 * 1024;
/** The most that one call takes. */
const PRICES_A_CALL = 500;

async function listText(source: string): Promise<string> {
  if (!/^https?:\/\//.test(source)) {
    if (!existsSync(source)) throw new CliError(`${source} is neither a file nor an address`);
    return readFileSync(source, "utf8");
  }
  const answer = await fetch(source, { signal: AbortSignal.timeout(FETCH_MS) });
  if (!answer.ok) throw new CliError(`${source} answers ${answer.status}`);
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of answer.body ?? []) {
    bytes += piece.length;
    if (bytes > LIST_BYTES_MAX) throw new CliError(`${source} is larger than ${LIST_BYTES_MAX} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}

async function readList(source: string): Promise<PriceList> {
  const body = await listText(source);
  try {
    return readPriceList(JSON.parse(body));
  } catch (error) {
    throw new CliError(`${source} is not a price list: ${(error as Error).message}`);
  }
}

const dollars = (usd: number | null | undefined) => usd?.toString() ?? "";

async function importFrom(client: Client, { words, options, output }: Invocation): Promise<void> {
  const list = await readList(needed(words, 1, "the file or the address of the list"));
  const current = await client.call("billing.prices.list");
  const changes = priceChanges(list, current, text(options, "provider") ?? undefined);
  const table = () =>
    output.table(
      changes,
      {
        model: ({ price }: PriceChange) => price.model,
        "in, before": ({ before }: PriceChange) => dollars(before.input_usd) || "unpriced",
        in: ({ price }: PriceChange) => dollars(price.input_usd),
        "out, before": ({ before }: PriceChange) => dollars(before.output_usd),
        out: ({ price }: PriceChange) => dollars(price.output_usd),
        "cached, before": ({ before }: PriceChange) => dollars(before.parts.cached_input),
        cached: ({ price }: PriceChange) => dollars(price.parts?.cached_input),
        from: ({ from }: PriceChange) => from,
      },
      "",
    );
  if (!output.json) {
    output.note(
      `${list.format}: ${list.prices.length} prices, of ${current.length} models that can be called now:`,
    );
    if (changes.length > 0) table();
  }
  const isAgreed =
    changes.length > 0 &&
    (options.yes === true ||
      /^y(es)?$/i.test(await ask(`Write these ${changes.length} prices? [y/N] `, "--yes")));
  for (let at = 0; isAgreed && at < changes.length; at += PRICES_A_CALL)
    await client.call("billing.prices.import", {
      prices: changes.slice(at, at + PRICES_A_CALL).map(({ price }) => price),
    });
  const written = isAgreed ? changes.length : 0;
  output.result({ format: list.format, changes, written }, () =>
    changes.length === 0 ? "No price changes" : `${written} of ${changes.length} prices were written`,
  );
}

export const prices: Command = {
  name: "prices",
  summary: "What models cost; take prices from models.dev's or LiteLLM's list; for administrators",
  examples: [
    "model-gateway prices",
    "model-gateway prices set gpt-5 --in 1.25 --out 10",
    "model-gateway prices set 'openai/*' --in 1 --out 4",
    "model-gateway prices remove 'openai/*'",
    "model-gateway prices import https://models.dev/api.json",
    "model-gateway prices import model_prices_and_context_window.json --provider openai --yes",
  ],
  actions: ["list", "set", "remove", "import"],
  options: {
    in: { type: "string", help: "with set: dollars per million tokens of the prompt" },
    out: { type: "string", help: "with set: dollars per million tokens of the answer" },
    cached: { type: "string", help: "with set: the same of what is read from the provider's cache" },
    provider: { type: "string", help: "with import: only what the list has of this provider" },
    yes: { type: "boolean", help: "with import: write without asking" },
  },
  async run(invocation) {
    const { words, options, output, connection } = invocation;
    const client = await connection.signedIn();
    const list = async () =>
      output.table(
        await client.call("billing.prices.list"),
        {
          model: ({ model }: ModelPrice) => model,
          "$ per million in": (row: ModelPrice) =>
            row.unpriced ? "unpriced" : row.not_billed ? "not billed" : dollars(row.input_usd),
          cached: ({ parts }: ModelPrice) => dollars(parts.cached_input),
          "cache write": ({ parts }: ModelPrice) => dollars(parts.cache_write),
          out: ({ output_usd }: ModelPrice) => dollars(output_usd),
          source: ({ source }: ModelPrice) => source ?? "",
        },
        "No model can be called; register a backend: model-gateway backends add <url>",
      );
    const model = () => needed(words, 1, "the model, or how models begin: 'openai/*'");
    const dollarsOf = (option: string): number => {
      const usd = Number(text(options, option) ?? Number.NaN);
      if (!(usd >= 0)) throw new UsageError(`--${option} must be dollars per million tokens, such as 1.25`);
      return usd;
    };
    const set = async () => {
      const price = { model: model(), input_usd: dollarsOf("in"), output_usd: dollarsOf("out") };
      const parts = options.cached === undefined ? {} : { parts: { cached_input: dollarsOf("cached") } };
      await client.call("billing.prices.set", { ...price, ...parts });
      output.result({ ok: true }, () => `${price.model} has its price`);
    };
    const remove = async () => {
      const { removed } = await client.call("billing.prices.remove", { model: model() });
      output.result({ removed }, () =>
        removed ? `The price of ${model()} is removed` : `${model()} had no price of its own`,
      );
    };
    await act(words, { list, set, remove, import: () => importFrom(client, invocation) }, "list");
  },
};
