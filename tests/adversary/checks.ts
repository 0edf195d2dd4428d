import type { Books, Row } from "./books.ts";
import type { ClipJob } from "./clips.ts";
import { type Dispatch, type Flight, isBrokenOff, numberOf, type Payer } from "./flights.ts";
import { deliveredTokens, owedTokens, type Tokens, usdOf } from "./owed.ts";
import { type Plot, TIERS } from "./plot.ts";
import type { Population, Someone } from "./population.ts";
import type { Round } from "./round.ts";
import { forbidden, spelled } from "./spelling.ts";
import { IMAGE_TOKENS } from "./upstream/reading.ts";
import { isPlausible } from "./upstream/usage.ts";
import { clipUsd } from "./upstream/video.ts";
import { workRows } from "./work-checks.ts";

/** Something that must not be, with the request or the person that it is about. */
export interface Problem {
  rule: string;
  message: string;
}

/** What people asked for in a round. */
type Served = Pick<Round, "flights" | "works" | "clips">;

export const POINTS_PER_USD = 100;
/** Dollars are doubles in the database. */
const USD_EPSILON = 1e-9;

/** Surfaces whose answers come as notifications. */
const NOTIFIED: ReadonlySet<string> = new Set(["send", "batch", "socket"]);

/** The rows of each request: the number in the model id tells which. */
export function rowsByFlight(rows: readonly Row[], flights: readonly Flight[]): Map<Flight, Row[]> {
  const byKey = Map.groupBy(rows, ({ userId, model }) => `${userId} ${numberOf(model)}`);
  return new Map(
    flights.map((flight) => [flight, byKey.get(`${flight.payer.userId} ${flight.modelNumber}`) ?? []]),
  );
}

/** Whether every request that owes something has its row. */
export const isComplete = (rows: readonly Row[], flights: readonly Flight[]): boolean =>
  [...rowsByFlight(rows, flights)].every(([flight, own]) => own.length > 0 || !owesRow(flight));

const owesRow = (flight: Flight): boolean => {
  const { prompt, completion } = owedTokens(flight);
  return prompt + completion > 0;
};

const describe = (flight: Flight): string => {
  const { asked, outcome, dispatch } = flight;
  const { report, ending, member, text } = asked.plan;
  const served = dispatch
    ? `upstream read ${dispatch.model}, ${dispatch.promptTokens} prompt tokens, ${dispatch.choices} × ${dispatch.limit ?? "unlimited"}, wrote ${sum(dispatch.pieces)} tokens, ended ${dispatch.end}, reported ${JSON.stringify(dispatch.reported)}`
    : "never reached the upstream";
  return `${asked.surface} (${text} in ${member}, ${report}, ${ending}, leaves ${asked.leave.at}): status ${outcome.status}${outcome.status >= 500 ? ` (${outcome.words.slice(0, 200)})` : ""}, ${deliveredTokens(flight)} tokens delivered${outcome.left ? ", left" : ""}; ${served}`;
};

const tokensOf = ({ promptTokens, completionTokens, cachedTokens }: Row): Tokens => ({
  prompt: promptTokens,
  completion: completionTokens,
  cached: cachedTokens,
});

/** The rows of one request as one: a voice session has one for each response. */
const merged = (rows: readonly Row[]): Row | undefined =>
  rows[0] && {
    ...rows[0],
    promptTokens: sum(rows.map(({ promptTokens }) => promptTokens)),
    completionTokens: sum(rows.map(({ completionTokens }) => completionTokens)),
    cachedTokens: sum(rows.map(({ cachedTokens }) => cachedTokens)),
    costUsd: rows[0].costUsd === null ? null : sum(rows.map(({ costUsd }) => costUsd ?? 0)),
  };

/** What each request owes, it owes once, and it owes nothing that cannot be. */
export function checkRequests(books: Books, flights: readonly Flight[]): Problem[] {
  return [...rowsByFlight(books.rows, flights)].flatMap(([flight, rows]) => {
    const problems: Problem[] = [];
    const { surface } = flight.asked;
    const report = (rule: string, message: string) =>
      problems.push({
        rule: `${rule}: ${surface}${flight.outcome.left ? ", left" : ""}`,
        message: `${message} — ${describe(flight)}`,
      });
    const [wrong] = flight.dispatch ? forbidden(flight.asked.members) : [];
    if (wrong)
      report(
        "forbidden",
        `${wrong.place} ${JSON.stringify(spelled(wrong.name, wrong.spelling))}: ${wrong.value} went through`,
      );
    const { status, words } = flight.outcome;
    // Notifications wait a second for their listener; on a busy machine it may come later and hear nothing.
    const cameTooLate = NOTIFIED.has(surface) && deliveredTokens(flight) === 0;
    if (words.startsWith("no answer in time") && !cameTooLate)
      report("no end", "the answer did not come to an end");
    // What passes as it is has the upstream's own status.
    if (status === 500 && !/unhealthy|not today/.test(words)) report("internal error", words);
    const { responses } = flight.asked;
    if (flight.dispatches.length > (responses?.length ?? 1))
      report("sent once", `sent upstream ${flight.dispatches.length} times`);
    // A response of a voice session that cannot be paid costs what it read; what is told of it later is another row.
    const answers = rows.filter(({ completionTokens }) => surface !== "voice" || completionTokens > 0);
    if (answers.length > Math.max(1, flight.dispatches.length))
      report("one row", `${rows.length} usage rows`);
    const row = merged(rows);
    const owed = owedTokens(flight);
    if (!row) {
      if (owesRow(flight))
        report("no row", `owes ${owed.prompt}+${owed.completion} tokens and has no usage row`);
      return problems;
    }
    const due = usdOf(flight.dispatch?.model ?? row.model, owed) ?? 0;
    const paid = row.costUsd ?? 0;
    const figures = `recorded ${row.promptTokens}+${row.completionTokens} tokens, ${row.costUsd} USD`;
    if (row.promptTokens < owed.prompt || row.completionTokens < owed.completion || paid < due - USD_EPSILON)
      report("underpaid", `${figures}; owed are ${owed.prompt}+${owed.completion} tokens, ${due} USD`);
    // Broken off on its way: whether the upstream had it already is known to nobody but the upstream.
    const isLost = flight.dispatches.length === 0 && isBrokenOff(flight.outcome);
    const most = isLost ? { prompt: mostOf(promptOf(flight)), completion: UNSEEN_MAX } : mostTokens(flight);
    if (row.promptTokens > most.prompt || row.completionTokens > most.completion)
      report("overcharged", `${figures}; at most ${most.prompt}+${most.completion} can be meant`);
    const expected = usdOf(row.model, tokensOf(row));
    if (Math.abs((expected ?? 0) - paid) > USD_EPSILON)
      report("priced", `${figures}; the price says ${expected}`);
    return problems;
  });
}

/** Estimates may be too high by this much; a figure of an upstream that cannot be true is far beyond it. */
const TOO_HIGH = { times: 2.5, plus: 1_500 };
/** Names and ids that come with a piece, such as a tool's. */
const FRAME_TOKENS = 20;

const mostOf = (tokens: number): number => tokens * TOO_HIGH.times + TOO_HIGH.plus;
/** As the client sent it. */
const promptOf = ({ asked }: Flight): number => asked.promptTokens + 2 * IMAGE_TOKENS;

/** What may have been written and not seen before an answer was cut short; the gateway holds no more at first. */
const UNSEEN_MAX = 8_192;

/** Servers of chats are relied on to keep to one name, which `extra` cannot set, or to what the gateway set; the others read their own only. */
const isKept = ({ asked, outcome }: Flight, { model }: Dispatch): boolean =>
  /^(ollama|claude|codex|gemini)-/.test(model) ||
  outcome.loweredTo !== null ||
  asked.members.some(({ name, place }) => name === "max_tokens" && place === "top");

function mostTokens(flight: Flight): Tokens {
  const { dispatches, asked } = flight;
  const upTo = (tokens: number, figure: unknown) =>
    Math.max(mostOf(tokens), isPlausible(figure) ? figure : 0);
  // What a voice session has reported so far is what the next response hears again.
  let heard = 0;
  const most = dispatches.map((dispatch) => {
    const { reported, pieces, promptTokens, hiddenTokens, choices, limit } = dispatch;
    const prompt =
      upTo(Math.max(promptTokens, asked.promptTokens) + 2 * IMAGE_TOKENS, reported?.prompt) + heard;
    const unseen =
      choices * (isKept(flight, dispatch) ? (limit ?? UNSEEN_MAX) : Math.max(limit ?? 0, UNSEEN_MAX));
    const written = sum(pieces) + hiddenTokens + pieces.length * FRAME_TOKENS;
    const completion = Math.max(upTo(written, reported?.completion), unseen);
    heard += prompt + completion;
    return { prompt, completion };
  });
  return {
    prompt: sum(most.map(({ prompt }) => prompt)),
    completion: sum(most.map(({ completion }) => completion)),
  };
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** A clip is paid by what the upstream was asked for and made, once, and only when there is one; cancelled or not. */
export function checkClips(books: Books, clips: readonly ClipJob[]): Problem[] {
  return clips.flatMap(({ jobId, task, status, costUsd, words }) => {
    const rows = books.rows.filter(({ id }) => id === jobId);
    const worth = task.clip ? clipUsd(task.clip) : 0;
    const about = `made ${JSON.stringify(task.clip)}, worth ${worth} USD; job ${status}, cost ${costUsd}; ${words}`;
    if (jobId === null) return task.clip ? [{ rule: "video", message: `refused, and yet ${about}` }] : [];
    const paid = sum(rows.map((row) => row.costUsd ?? 0));
    const isMade = status === "done" || (status === "cancelled" && task.clip !== null);
    if (!isMade)
      return rows.length > 0 ? [{ rule: "video", message: `a row of ${paid} USD, but ${about}` }] : [];
    if (rows.length !== 1) return [{ rule: "video", message: `${rows.length} rows: ${about}` }];
    if (paid < worth - USD_EPSILON)
      return [{ rule: "video underpaid", message: `recorded ${paid} USD: ${about}` }];
    return [];
  });
}

/** Recorded with more output than its upstream was allowed, because it had to be estimated. */
const isBeyondLimit = ({ dispatches }: Flight, rows: readonly Row[]): boolean =>
  dispatches.every(({ limit }) => limit !== null) &&
  sum(rows.map(({ completionTokens }) => completionTokens)) >
    sum(dispatches.map(({ choices, limit }) => choices * limit!));

/**
 * At most one request crosses a quota's line, in every window that limits it. What has no price can only be paid
 * by the quota: where its upstream reports too much, several such requests that were under way may cross. So may
 * one that was held in points and is estimated to have cost a little more than these, or finds them taken by one
 * that was held on the quota and is charged to points first, as the contract says: the quota pays it as a whole,
 * beside what is held there. And so may those that are estimated to have written more than their upstream was allowed.
 */
export function checkQuotas(
  books: Books,
  { people }: Pick<Population, "people">,
  { flights, plot }: { flights: readonly Flight[]; plot: Pick<Plot, "exaggerates"> },
): Problem[] {
  const moved = new Set(
    [...rowsByFlight(books.rows, flights)].flatMap(([flight, rows]) =>
      rows.length > 0 && isBeyondLimit(flight, rows) ? rows : [],
    ),
  );
  return people.flatMap((someone) => {
    const { usd, tokens } = TIERS[someone.tier];
    const theirs = books.rows.filter(({ userId }) => userId === someone.userId);
    const hadPoints = theirs.some(({ points }) => points !== null && points > 0);
    const own = theirs.filter(
      (row) =>
        row.points === null &&
        !(plot.exaggerates && row.costUsd === null) &&
        !moved.has(row) &&
        !(hadPoints && row.costUsd !== null),
    );
    const byKeys = own.filter(({ signedIn }) => !signedIn);
    const windows: [string, Row[]][] = [
      ["all keys", byKeys],
      ...[...Map.groupBy(byKeys, ({ project }) => `project ${project}`)],
      ["signed in", own.filter(({ signedIn }) => signedIn)],
    ];
    return windows.flatMap(([name, rows]) => [
      ...crossings(
        `${someone.tier}, ${name}, USD`,
        usd,
        rows.map(({ costUsd }) => costUsd ?? 0),
      ),
      ...crossings(
        `${someone.tier}, ${name}, tokens`,
        tokens,
        rows.map(({ promptTokens, completionTokens }) => promptTokens + completionTokens),
      ),
    ]);
  });
}

/** Without its largest row, a window is below its line; and a quota of nothing pays nothing. */
function crossings(name: string, quota: number | null, amounts: readonly number[]): Problem[] {
  const spent = amounts.filter((amount) => amount > 0);
  if (quota === null || spent.length === 0) return [];
  const before = sum(spent) - Math.max(...spent);
  if (before < quota - USD_EPSILON) return [];
  return [
    {
      rule: "quota",
      message: `${name}: ${sum(spent)} counted by ${spent.length} requests on a quota of ${quota}; more than one crossed the line`,
    },
  ];
}

/** The rows of everything that was asked for, with who pays for them. */
function paidRows(rows: readonly Row[], { flights, works, clips }: Served): { payer: Payer; own: Row[] }[] {
  return [
    ...Array.from(rowsByFlight(rows, flights), ([{ payer }, own]) => ({ payer, own })),
    ...works.map((job) => ({ payer: job.payer, own: workRows(rows, job) })),
    ...clips.map(({ payer, jobId }) => ({ payer, own: rows.filter(({ id }) => id === jobId) })),
  ];
}

/**
 * Points are what the cost is worth, for the group's pool too: nobody but the platform gives a discount. An account
 * carries its rounding from one charge to the next, whatever each is for: one chat may pay nothing and the clip after
 * it for both. So only all charges of an account together are exact, to half a point.
 */
export function checkPoints(
  books: Books,
  served: Served,
  { isDisbanded }: Pick<Population, "isDisbanded">,
): Problem[] {
  const problems: Problem[] = [];
  // Keys of a deleted group draw on their members' wallets.
  const byAccount = Map.groupBy(paidRows(books.rows, served), ({ payer }) =>
    isDisbanded ? "all accounts" : payer.account,
  );
  for (const [account, paid] of byAccount) {
    const rows = paid.flatMap(({ own }) => own).filter(({ points }) => points !== null);
    const points = sum(rows.map((row) => row.points!));
    const worth = sum(rows.map(({ costUsd }) => costUsd ?? 0)) * POINTS_PER_USD;
    const accounts = new Set(paid.map(({ payer }) => payer.account)).size;
    if (points < worth - accounts)
      problems.push({
        rule: "points",
        message: `${account}: ${points} points were taken for ${worth} points' worth`,
      });
  }
  for (const [account, balance] of books.balances)
    if (balance < 0) problems.push({ rule: "negative", message: `${account} has ${balance} points` });
  for (const [account, debt] of books.debts)
    if (debt < 0) problems.push({ rule: "negative", message: `the debt of ${account} is ${debt} points` });
  return problems;
}

export interface Plan {
  usage: { cost_usd: number; tokens: number; requests: number };
  points_balance: number;
}

/** What a person is told is what the rows add up to. */
export function checkSums(books: Books, someone: Someone, plan: Plan): Problem[] {
  const rows = books.rows.filter(({ userId }) => userId === someone.userId);
  const cost = sum(rows.map(({ costUsd }) => costUsd ?? 0));
  const tokens = sum(rows.map(({ promptTokens, completionTokens }) => promptTokens + completionTokens));
  const { usage, points_balance } = plan;
  const balance = books.balances.get(`user:${someone.userId}`) ?? 0;
  const wrong = [
    Math.abs(usage.cost_usd - cost) > 1e-6 && `cost ${usage.cost_usd} for rows of ${cost}`,
    usage.tokens !== tokens && `${usage.tokens} tokens for rows of ${tokens}`,
    usage.requests !== rows.length && `${usage.requests} requests for ${rows.length} rows`,
    points_balance !== balance && `${points_balance} points for a wallet of ${balance}`,
  ].filter((text) => text !== false);
  return wrong.map((message) => ({ rule: "sums", message: `billing.plan says ${message}` }));
}
