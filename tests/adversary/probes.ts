import { chatBody, sendParams } from "./bodies.ts";
import { type Books, debtOf, quiesce, type Row, readBooks } from "./books.ts";
import { POINTS_PER_USD, type Problem } from "./checks.ts";
import { post, send } from "./doors.ts";
import type { Flight, Payer } from "./flights.ts";
import { type ChatStep, PRICES, TIERS } from "./plot.ts";
import type { Someone } from "./population.ts";
import type { Round } from "./round.ts";

/** The smallest answer that a request may be lowered to. */
const LOWERED_TOKENS_MIN = 256;
const PROBE_TOKENS = 300;
/** Points that a probe's prompt may be held for, and then some. */
const PROMPT_POINTS = 5;
/** A group's admin may make members pay more. */
const MULTIPLIER_MAX = 3;
const DOORS = ["plain", "group", "signed in"] as const;
type Door = (typeof DOORS)[number];
const REFUSALS = new Set([402, 429, -32006]);

const POINTS_PER_TOKEN = (PRICES.dear.output / 1_000_000) * POINTS_PER_USD;

/** A short, honest request. */
const HONEST: Omit<ChatStep, "who" | "members"> = {
  do: "chat",
  instance: 0,
  key: "plain",
  via: "chat",
  model: "dear",
  upstream: "chat",
  stream: false,
  prompt: { kind: "prose", tokens: 5, disguise: "none", images: 0, tools: 0, prediction: 0 },
  asText: { form: "text", suffix: 0 },
  conversation: false,
  memory: false,
  plan: {
    wants: 3,
    pieceTokens: 3,
    text: "prose",
    member: "content",
    alike: false,
    report: "honest",
    cached: "none",
    ending: "whole",
  },
  leave: { at: "never" },
};

interface Standing {
  points: number;
  debt: number;
  /** The quota that this door spends from has nothing left; null when it is too close to tell. */
  drained: boolean | null;
}

const sum = (rows: readonly Row[], of: (row: Row) => number) =>
  rows.reduce((total, row) => total + of(row), 0);
/** What the probes before this one may have used up. */
const SPENT_BY_PROBES = { usd: 0.05, tokens: 300 };

/** Whether a window has nothing left, by what the rows say. */
function isDrained(
  rows: readonly Row[],
  { usd, tokens }: { usd: number | null; tokens: number | null },
): boolean | null {
  const spent = sum(rows, ({ costUsd }) => costUsd ?? 0);
  const used = sum(rows, ({ promptTokens, completionTokens }) => promptTokens + completionTokens);
  if ((tokens !== null && used >= tokens) || (usd !== null && spent >= usd)) return true;
  const isClose =
    (tokens !== null && used >= tokens - SPENT_BY_PROBES.tokens) ||
    (usd !== null && spent >= usd - SPENT_BY_PROBES.usd);
  return isClose ? null : false;
}

function standing(books: Books, someone: Someone, payer: Payer): Standing {
  const quota = TIERS[someone.tier];
  const own = books.rows.filter(({ userId, points }) => userId === someone.userId && points === null);
  const byKeys = own.filter(({ signedIn }) => !signedIn);
  const windows = payer.signedIn
    ? [own]
    : [byKeys, byKeys.filter(({ project }) => project === payer.project)];
  // What is owed on the own wallet is paid before the quota pays for anything, also by a group's key.
  const isClosed = debtOf(books, `user:${someone.userId}`, someone) > 0;
  const drained = windows.map((rows) => isClosed || isDrained(rows, quota));
  return {
    points: books.balances.get(payer.account) ?? 0,
    debt: debtOf(books, payer.account, someone),
    drained: drained.includes(true) ? true : drained.includes(null) ? null : false,
  };
}

/** Sends one short request through a door. */
async function knock(round: Round, someone: Someone, door: Door, limit: number): Promise<Flight> {
  const { population, stage } = round;
  const members = [
    { name: "max_tokens", spelling: "plain", place: "top", value: String(limit), before: null },
  ] as const;
  const step: ChatStep = { ...HONEST, who: population.people.indexOf(someone), members: [...members] };
  const asked = {
    surface: `probe, ${door}`,
    model: step.model,
    plan: step.plan,
    leave: step.leave,
    promptTokens: step.prompt.tokens,
    members,
  };
  const instance = stage.at(step.who + 1);
  if (door === "signed in") {
    const flight = round.open(population.signedIn(someone), asked);
    const params = [sendParams(step, { flight, conversationId: null })];
    await send([flight], { instance, listenAt: instance, token: someone.token, params, over: "post" });
    return flight;
  }
  const { key, payer } = await population.key(someone, door);
  const flight = round.open(payer, asked);
  await post(flight, instance, "/v1/chat/completions", key, chatBody(step, { flight, conversationId: null }));
  return flight;
}

const RETRY_MS = 100;
const SERVED_WITHIN_MS = 3_000;

/** What another instance held a moment ago may still be on its way back. */
async function knockUntilServed(round: Round, someone: Someone, door: Door, limit: number): Promise<Flight> {
  for (const deadline = Date.now() + SERVED_WITHIN_MS; ; await Bun.sleep(RETRY_MS)) {
    const flight = await knock(round, someone, door, limit);
    const isServed = !REFUSALS.has(flight.outcome.status) && flight.outcome.loweredTo === null;
    if (isServed || Date.now() > deadline || round.isFull) return flight;
  }
}

const payerAt = ({ population }: Round, someone: Someone, door: Door): Payer => {
  const own = population.signedIn(someone);
  if (door === "signed in") return own;
  return {
    ...own,
    signedIn: false,
    project: "default",
    account: door === "group" ? `group:${population.groupId}` : own.account,
  };
};

/** People with nothing left are refused, people with something left are served, and no hold was left behind. */
export async function probe(round: Round, books: Books): Promise<Problem[]> {
  const problems: Problem[] = [];
  for (const someone of round.population.people)
    for (const door of DOORS) problems.push(...(await probeDoor(round, books, someone, door)));
  return problems;
}

async function probeDoor(round: Round, books: Books, someone: Someone, door: Door): Promise<Problem[]> {
  if (door === "group" && round.population.isDisbanded) return [];
  const payer = payerAt(round, someone, door);
  const { points, debt, drained } = standing(books, someone, payer);
  const multiplier = door === "group" ? MULTIPLIER_MAX : 1;
  const needed = (LOWERED_TOKENS_MIN * POINTS_PER_TOKEN + PROMPT_POINTS) * multiplier;
  const words = `${someone.tier}, ${door}: ${points} points, debt ${debt}, quota ${drained ? "drained" : "not drained"}`;
  const isPoor = points < LOWERED_TOKENS_MIN * POINTS_PER_TOKEN - 1;
  if (debt > 0 || (drained === true && isPoor)) {
    const flight = await knock(round, someone, door, PROBE_TOKENS);
    if (!flight.dispatch) return [];
    return [
      {
        rule: debt > 0 ? "served in debt" : "served for nothing",
        message: `${words}; the next request was served`,
      },
    ];
  }
  // Everything that the wallet has: nothing else may be holding any of it.
  const isRich = door === "plain" && points >= needed;
  const limit = isRich ? Math.floor((points - PROMPT_POINTS) / POINTS_PER_TOKEN) : PROBE_TOKENS;
  if (!(drained === false || points >= needed)) return [];
  const flight = await knockUntilServed(round, someone, door, limit);
  const { status, loweredTo } = flight.outcome;
  if (REFUSALS.has(status)) {
    // Probes that came through lowered, while something was still held, have cost something each.
    const now = await readBooks(round.stage, round.population, () => true);
    if (drained !== false && (now.balances.get(payer.account) ?? 0) < needed) return [];
    return [
      {
        rule: "refused",
        message: `${words}; a request for ${limit} tokens got ${status} ${flight.outcome.words}`,
      },
    ];
  }
  if (isRich && loweredTo !== null)
    return [
      { rule: "hold left", message: `${words}; a request for ${limit} tokens was lowered to ${loweredTo}` },
    ];
  return [];
}

/** A debt is paid before anything else, and then the door is open again. */
export async function payDebts(round: Round, books: Books): Promise<Problem[]> {
  const { population, stage } = round;
  const problems: Problem[] = [];
  const spare = 100;
  for (const [i, someone] of population.people.entries()) {
    const account = `user:${someone.userId}`;
    const debt = debtOf(books, account, someone);
    if (debt === 0) continue;
    await population.pay(i, debt + spare);
    const after = await readBooks(stage, population, () => true);
    const left = { debt: debtOf(after, account, someone), points: after.balances.get(account) ?? 0 };
    if (left.debt !== 0 || left.points !== spare)
      problems.push({
        rule: "debt",
        message: `${debt} were owed, ${debt + spare} were paid: ${JSON.stringify(left)}`,
      });
    const flight = await knockUntilServed(round, someone, "plain", LOWERED_TOKENS_MIN);
    if (REFUSALS.has(flight.outcome.status))
      problems.push({
        rule: "debt",
        message: `${debt} points of debt were paid, and ${flight.outcome.words}`,
      });
  }
  await quiesce(stage, population, round.flights);
  return problems;
}
