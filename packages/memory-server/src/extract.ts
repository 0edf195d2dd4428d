/** What of a turn is worth keeping: the user's own statements, word for word. Nothing is inferred. */
const STATEMENT_CHARS_MIN = 8;
const STATEMENT_CHARS_MAX = 500;
const STATEMENTS_PER_TURN_MAX = 20;

const CJK = /[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]/gu;
const CODE_BLOCK = /```[\s\S]*?(```|$)/g;
/** After a sentence's end and at line ends; a full stop inside a number or a name is none. */
const SENTENCE_END = /(?<=[.!?])\s+|(?<=[。！？])|\n+/u;

const isQuestion = (text: string) => /[?？]["')\]]*$/.test(text);
const GREETING = /^(hi|hello|hey|good (morning|afternoon|evening)|thanks|thank you)\b/i;
const ORDER =
  /^((please|now|then|and|ok|okay|so|again)\b[\s,]*)*(show|tell|give|write|rewrite|make|explain|list|translate|summari[sz]e|fix|add|remove|change|generate|create|find|help|continue|answer|describe|compare|convert|repeat|say|count|try)\b|\bplease[.!]*$/i;
const OF_ONESELF = /\b(i|i'm|i've|my|mine|we|we're|our|ours)\b/i;
/** What is asked for now says nothing about the person, unless they say it of themselves: "Remember that my …". */
const isPassing = (text: string) => !OF_ONESELF.test(text) && (GREETING.test(text) || ORDER.test(text));
/** One CJK character says about as much as half a word. */
const weight = (text: string) => text.length + (text.match(CJK)?.length ?? 0) * 2;

/** The statements in a text, in order. */
export function statementsOf(text: string): string[] {
  return text
    .replace(CODE_BLOCK, "\n")
    .split(SENTENCE_END)
    .map((sentence) => sentence.replace(/\s+/g, " ").trim())
    .filter((sentence) => !isQuestion(sentence) && !isPassing(sentence))
    .filter((sentence) => weight(sentence) >= STATEMENT_CHARS_MIN && sentence.length <= STATEMENT_CHARS_MAX);
}

/** The facts of one turn. */
export function factsOf(messages: readonly { role: string; content: string }[]): string[] {
  const statements = messages
    .filter(({ role }) => role === "user")
    .flatMap(({ content }) => statementsOf(content));
  return [...new Map(statements.map((text) => [normalised(text), text])).values()].slice(
    0,
    STATEMENTS_PER_TURN_MAX,
  );
}

/** Two texts with the same normal form are the same fact. */
export const normalised = (text: string): string =>
  text
    .normalize("NFKC")
    .toLowerCase()
    .replace(/\s+/g, " ")
    .replace(/[\p{P}\p{S}\s]+$/u, "")
    .trimStart();

/** Text for the index: every CJK character a word of its own, because those scripts put no spaces. */
export const spaced = (text: string): string => text.replace(CJK, " $& ");

const QUERY_TERMS_MAX = 32;
const COMMON_WORDS = new Set(
  "a about am an and any are as at be been but by can could did do does for from had has have how i if in is it its me my of on or our so some tell than that the their them then there these they this to us was we were what when where which who whose why will with would you your".split(
    " ",
  ),
);

/** The search terms of a question: words, and neighbouring pairs of CJK characters, each quoted. */
export function queryTerms(text: string): string[] {
  const runs =
    text
      // No letter has so many marks, and to put thousands in order takes a second.
      .replace(/\p{M}{9,}/gu, " ")
      .normalize("NFKC")
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  const terms = runs.flatMap((run) => {
    const parts = spaced(run).trim().split(/\s+/);
    if (parts.length === 1) return parts;
    return parts.slice(1).map((part, i) => `${parts[i]} ${part}`);
  });
  const telling = terms.filter((term) => !COMMON_WORDS.has(term));
  return [...new Set(telling.length > 0 ? telling : terms)].slice(0, QUERY_TERMS_MAX);
}
