/** Sessions of coding agents as they were recorded: each request as what it changes of the one before. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Exchange, type Json, madeUpIn, type Told, toldBy } from "../../dialects/exchanges.ts";
import { DIALECTS, type DialectName, modelOf } from "../../dialects/vendors.ts";

interface Step {
  /** Fields with another value; null: gone. */
  set: Json;
  /** How much of the history is as it was, and what follows. */
  keep: number;
  add: Json[];
}

interface Recorded {
  path: string;
  headers: Record<string, string>;
  /** What the first step of every session changes. */
  base: Json;
  sessions: Partial<Record<DialectName, Session>>;
}

interface Session {
  steps: Step[];
  /** What its answers tell: those with a call, which are alike, and the last one. */
  told: { calling: Told[]; done: Told[] };
}

const TEXT_CHARS_MAX = 160;
/** Headers that are the program's own. */
const OWN_HEADERS =
  /^(anthropic-|x-claude|x-app|x-stainless|x-codex|x-client|x-session|session-id|thread-id|originator|user-agent|x-goog-api-client)/;
const PLACE = /\{\{(\d+)\.(\d+)\}\}/g;

const fileOf = (program: string): string => join(import.meta.dir, "fixtures", `${program}.json`);
const read = (program: string): Recorded => JSON.parse(readFileSync(fileOf(program), "utf8"));
const historyOf = (body: Json): string => ["messages", "input", "contents"].find((name) => body[name])!;
const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

function stepBetween(before: Json, body: Json): Step {
  const name = historyOf(body);
  const [had, has] = [before[name], body[name]] as Json[][];
  const differs = has!.findIndex((entry, at) => !isSame(entry, had![at]));
  const keep = differs === -1 ? has!.length : differs;
  const names = new Set([...Object.keys(before), ...Object.keys(body)]);
  const changed = [...names].filter((field) => field !== name && !isSame(before[field], body[field]));
  return {
    set: Object.fromEntries(changed.map((field) => [field, body[field] ?? null])),
    ...{ keep, add: has!.slice(keep) },
  };
}

function after(before: Json, { set, keep, add }: Step): Json {
  const name = historyOf(before);
  const body = { ...before, ...set, [name]: [...before[name].slice(0, keep), ...add] };
  for (const field in set) if (set[field] === null) delete body[field];
  return body;
}

/** The vendors' prompts are cut, and what the answers made up becomes the place where it stood. */
export function record(program: string, dialect: DialectName, exchanges: readonly Exchange[]): void {
  const places = new Map<string, string>();
  const bodies = exchanges.map(({ body, answer }, turn) => {
    let text = JSON.stringify(body);
    for (const [value, place] of places) text = text.replaceAll(value, place);
    for (const [at, value] of madeUpIn(answer).entries())
      if (value.length >= 8 && !places.has(value)) places.set(value, `{{${turn}.${at}}}`);
    return JSON.parse(text, (name, value) =>
      typeof value === "string" && value.length > TEXT_CHARS_MAX && !value.includes("{{") && name !== "data"
        ? `${value.slice(0, TEXT_CHARS_MAX / 2)} …`
        : value,
    );
  });
  const { path, headers } = exchanges[0]!;
  const own = Object.fromEntries(Object.entries(headers).filter(([name]) => OWN_HEADERS.test(name)));
  const base = dialect === DIALECTS[0] ? bodies[0] : read(program).base;
  const sessions = dialect === DIALECTS[0] ? {} : read(program).sessions;
  sessions[dialect] = {
    steps: bodies.map((body, turn) => stepBetween(bodies[turn - 1] ?? base, body)),
    told: { calling: toldBy(exchanges[0]!.answer), done: toldBy(exchanges.at(-1)!.answer) },
  };
  const recorded = { path: path.replace(modelOf(dialect), "{model}"), headers: own, base, sessions };
  writeFileSync(fileOf(program), `${JSON.stringify(recorded, null, 1)}\n`);
}

/** The requests of a session: each needs the answers before it. */
export function sessionOf(program: string, dialect: DialectName) {
  const { path, headers, base, sessions } = read(program);
  const { steps, told } = sessions[dialect]!;
  let body = base;
  return {
    ...{ headers, told },
    path: path.replace("{model}", modelOf(dialect)),
    requests: steps.map((step) => (answers: readonly string[]): string => {
      body = after(body, step);
      const madeUp = answers.map(madeUpIn);
      return JSON.stringify(body).replace(PLACE, (_, turn, at) => madeUp[turn]![at]!);
    }),
  };
}
