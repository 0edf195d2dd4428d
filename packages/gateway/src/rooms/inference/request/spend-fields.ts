import { fail } from "../../../kernel/errors.ts";

/** Fields that limit the output, under every name that servers use. */
const LIMIT_FIELDS = [
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
  "max_new_tokens",
  "max_gen_len",
  "max_length",
  "max_tokens_to_sample",
  "num_predict",
  "n_predict",
  "maxOutputTokens",
  "maxTokens",
  // A server that ignores case reads these as the two above; being lower case, they pass the check for other spellings.
  "maxoutputtokens",
  "maxtokens",
] as const;

/** Fields that multiply it. */
const COUNT_FIELDS = [
  "n",
  "best_of",
  "num_return_sequences",
  "candidate_count",
  "candidateCount",
  "candidatecount",
] as const;

/** Text that is charged as output as far as the answer differs from it. */
export const PREDICTION = "prediction";
/** Where a server's own options stand; limits may be among them. */
export const OPTIONS = "options";

const KINDS: ReadonlyMap<string, "limit" | "count"> = new Map([
  ...LIMIT_FIELDS.map((name) => [name, "limit"] as const),
  ...COUNT_FIELDS.map((name) => [name, "count"] as const),
]);
export const SPEND_NAMES: readonly string[] = [...KINDS.keys(), PREDICTION, OPTIONS];

/** The largest value that any of these fields may have. */
const VALUE_MAX = 10_000_000;

/** Whether the field limits or multiplies the output. */
export const isSpendField = (name: string): boolean => KINDS.has(name);

/** The number of such a field, or the refusal; null when it is null, as if it were not there. */
export function spendNumber(value: unknown, field: string): number | null {
  if (value === null) return null;
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= VALUE_MAX)
    return value as number;
  return fail(
    "missing_fields",
    `\`${field}\` must be a whole number from 1 to ${VALUE_MAX}; leave it out for no limit of your own`,
    { data: { fields: [field] } },
  );
}

/** As Unicode folds case: these are the letters that fold to a plain one, besides the capitals. */
const folded = (key: string): string => key.toLowerCase().replaceAll("\u017f", "s").replaceAll("\u212a", "k");

/** Names that no other key may fold to, because servers that ignore case would read it as one of them. */
export class ProtectedNames {
  readonly #names: ReadonlySet<string>;
  readonly #byFold: ReadonlyMap<string, string>;

  constructor(names: Iterable<string>) {
    this.#names = new Set(names);
    this.#byFold = new Map(Array.from(this.#names, (name) => [folded(name), name]));
  }

  /** Refuses a key that is another spelling of a name. Most keys are plain lower case and pass after one check. */
  require(key: string, where = ""): void {
    if (!UNUSUAL.test(key)) return;
    const name = this.#byFold.get(folded(key));
    if (name === undefined || this.#names.has(key)) return;
    const field = where + key;
    fail("missing_fields", `\`${field}\` is refused: write \`${name}\`, the only spelling of this field`, {
      data: { fields: [field] },
    });
  }
}
const UNUSUAL = /[^a-z0-9_]/;

/** A limit with the place where it stands in what is sent. */
export interface OutputLimit {
  name: string;
  /** Inside `options`. */
  inOptions: boolean;
  value: number;
}

/** What a request says about the size of its answer. */
export class SpendFields {
  readonly limits: OutputLimit[] = [];
  /** Answers that are asked for at once. */
  choices = 1;
  /** Of the predicted output, estimated. */
  predictionTokens = 0;
  /** The prompt is nothing but token numbers, which are counted instead of their digits. */
  isNumbered = false;

  /** Notes one of these fields; `where` it stood is for the refusal of what is not a number. */
  add(name: string, value: unknown, where: "" | "options." | "extra."): void {
    const number = spendNumber(value, where + name);
    if (number === null) return;
    if (KINDS.get(name) === "count") this.choices = Math.max(this.choices, number);
    else this.limits.push({ name, inOptions: where === "options.", value: number });
  }
}
