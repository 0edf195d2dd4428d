import type { Member, Place, Spelling } from "./plot.ts";

/** The names under which servers know a limit of the output. */
export const LIMIT_NAMES = [
  "max_tokens",
  "max_completion_tokens",
  "max_output_tokens",
  "max_new_tokens",
  "num_predict",
  "n_predict",
  "max_gen_len",
  "max_length",
  "max_tokens_to_sample",
  "maxOutputTokens",
  "maxTokens",
] as const;
/** The names under which servers know how many answers to write. */
export const COUNT_NAMES = [
  "n",
  "best_of",
  "num_return_sequences",
  "candidate_count",
  "candidateCount",
] as const;

const FOLDS: Record<string, string> = { s: "\u017f", k: "\u212a" };

/** A key's text inside the quotes. `escaped` is the same key; the others only fold to it. */
export function spelled(name: string, spelling: Spelling): string {
  switch (spelling) {
    case "plain":
      return name;
    case "escaped":
      return `\\u${name.charCodeAt(0).toString(16).padStart(4, "0")}${name.slice(1)}`;
    case "capital":
      return name[0]!.toUpperCase() + name.slice(1);
    case "upper":
      return name.toUpperCase();
    case "folded": {
      const at = name.search(/[sk]/);
      return at === -1 ? spelled(name, "upper") : name.slice(0, at) + FOLDS[name[at]!] + name.slice(at + 1);
    }
  }
}

/** Unicode simple case folding, as far as the names here need it. */
export const fold = (key: string): string => key.toLowerCase().replaceAll("\u017f", "s");

/** Whether servers that ignore case take the key for another one than it is. */
export const onlyFolds = ({ name, spelling }: Pick<Member, "name" | "spelling">): boolean =>
  spelling !== "plain" && spelling !== "escaped" && spelled(name, spelling) !== name;

const isLimit = (name: string) => (LIMIT_NAMES as readonly string[]).includes(name);
const isCount = (name: string) => (COUNT_NAMES as readonly string[]).includes(name);

const TOKENS_MAX = 10_000_000;
/** Whether the JSON text is a limit or a count that a request may have. */
const isPlausible = (value: string): boolean => {
  const number: unknown = JSON.parse(value);
  return typeof number === "number" && Number.isInteger(number) && number >= 1 && number <= TOKENS_MAX;
};

/** Members of which no gateway may let a request through: other spellings, and figures that are none. */
export function forbidden(members: readonly Member[]): Member[] {
  return members.filter((member) => {
    const isFigure = isLimit(member.name) || isCount(member.name);
    // Of what is inside `options`, servers take limits and counts only.
    if (member.place === "options" && !isFigure) return false;
    if (onlyFolds(member)) return true;
    // A null may count as absent, and what the same key says elsewhere may overrule it.
    if (member.value === "null" || !isFigure) return false;
    return (
      !isPlausible(member.value) &&
      members.every(({ name }, i) => name !== member.name || members[i] === member)
    );
  });
}

export const objectText = (members: readonly [key: string, value: string][]): string =>
  `{${members.map(([key, value]) => `"${key}":${value}`).join(",")}}`;

/** The members of one place as keys and JSON texts, in order, repetitions first. */
export const membersAt = (members: readonly Member[], place: Place): [string, string][] =>
  members
    .filter((member) => member.place === place)
    .flatMap(({ name, spelling, value, before }): [string, string][] => {
      const key = spelled(name, spelling);
      return before === null
        ? [[key, value]]
        : [
            [key, before],
            [key, value],
          ];
    });
