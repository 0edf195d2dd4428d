import { POINTS_PER_USD, type Problem } from "./checks.ts";
import type { Dispatch, Flight, Payer } from "./flights.ts";
import { classOf, deliveredTokens, ESTIMATE_SLACK, owedTokens, type Tokens, usdOf } from "./owed.ts";
import { PRICES, TIERS } from "./plot.ts";
import type { Round } from "./round.ts";
import { clipUsd } from "./upstream/video.ts";
import { servedUsd } from "./work-checks.ts";

/** What a request without a limit is held for, where the price table does not know the model's own. */
const UNLIMITED_TOKENS = 8_192;
/** How far the one request that crosses a quota's line may go beyond it. */
const CROSSING_TOKENS = 1_024;
const SIGNED_IN_AND_KEYS = 2;

const MILLION = 1_000_000;

/** The most that a request can come to, as the upstream reads it. */
function boundOf({ model, promptTokens, choices, limit }: Dispatch): { tokens: number; usd: number | null } {
  const completion = choices * (limit ?? UNLIMITED_TOKENS);
  // The prompt was estimated before it was sent.
  const prompt = Math.max(0, promptTokens * (1 - ESTIMATE_SLACK.share) - ESTIMATE_SLACK.tokens);
  return { tokens: prompt + completion, usd: usdOf(model, { prompt, completion }) };
}

/** Nothing is sent upstream whose cost could go beyond what its payer ever had, in points or in quota. */
export function checkBounds({ plot, population, flights }: Round): Problem[] {
  // A stream ends with the key that it was asked for with.
  const isCutOff = ({ account, project }: Payer) =>
    (account === population.poolAccount && population.isDisbanded) ||
    (project === "other" && plot.steps.some((step) => step.do === "revoke"));
  return flights.flatMap(({ dispatch, payer, asked, outcome }) => {
    // What a voice session may cost grows with it.
    if (!dispatch || asked.responses) return [];
    const problems: Problem[] = [];
    const { tier } = population.people.find(({ userId }) => userId === payer.userId)!;
    const { usd, tokens } = TIERS[tier];
    const bound = boundOf(dispatch);
    const points = population.creditedFor(payer);
    const outputUsd = (PRICES[classOf(dispatch.model)]?.output ?? 0) / MILLION;
    // Points pay for what has a price.
    const byPoints = bound.usd !== null && bound.usd <= points / POINTS_PER_USD;
    const byQuota =
      (usd === null || (usd > 0 && (bound.usd ?? 0) <= usd + CROSSING_TOKENS * outputUsd)) &&
      (tokens === null || (tokens > 0 && bound.tokens <= tokens + CROSSING_TOKENS));
    const about = `${asked.surface}: ${dispatch.promptTokens} prompt tokens and ${dispatch.choices} × ${dispatch.limit ?? "unlimited"} of ${dispatch.model}`;
    if (!byPoints && !byQuota)
      problems.push({
        rule: `bound: ${asked.surface}`,
        message: `${about} can cost ${bound.usd} USD; the payer ever had ${points} points and the quota of ${tier}`,
      });
    const { loweredTo, left } = outcome;
    if (loweredTo !== null && (dispatch.limit === null || dispatch.limit > loweredTo))
      problems.push({ rule: "lowered", message: `${about}; the client was told ${loweredTo}` });
    const isCut = dispatch.end === "closed" && !left && !isCutOff(payer);
    if (tier === "storm-rich" && (loweredTo !== null || isCut))
      problems.push({
        rule: `cut: ${asked.surface}`,
        message: `${about}: lowered to ${loweredTo}, ended ${dispatch.end}, though nothing limits its payer`,
      });
    return problems;
  });
}

/** What is owed for a request, as far as it was really served: a report may say more. */
function servedTokens(flight: Flight): Tokens {
  const { prompt, completion, cached } = owedTokens(flight);
  const read = flight.dispatches.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return {
    prompt: Math.min(prompt, read),
    completion: Math.min(completion, deliveredTokens(flight)),
    cached,
  };
}

/** All that was served to these people, by the upstream's count, is within all that they ever had. */
export function checkValue({ population, flights, clips, works }: Round): Problem[] {
  const { people } = population;
  if (people.some(({ tier }) => tier === "storm-rich" || tier === "storm-tokens")) return [];
  const served =
    flights.reduce(
      (sum, flight) => sum + (usdOf(flight.dispatch?.model ?? "", servedTokens(flight)) ?? 0),
      0,
    ) +
    clips.reduce(
      (sum, { status, task }) => sum + (status === "done" && task.clip ? clipUsd(task.clip) : 0),
      0,
    ) +
    works.reduce((sum, job) => sum + servedUsd(job), 0);
  const largestUsd = Math.max(
    0,
    ...flights.map(({ dispatch }) => (dispatch && boundOf(dispatch).usd) ?? 0),
    ...clips.map(({ task }) => (task.clip ? clipUsd(task.clip) : 0)),
    ...works.map(({ task }) => task.worthUsd ?? 0),
  );
  const accounts = new Set([population.poolAccount, ...people.map(({ userId }) => `user:${userId}`)]);
  const points = [...accounts].reduce((sum, account) => sum + population.credited(account), 0);
  const quota = people.reduce((sum, { tier }) => sum + (TIERS[tier].usd ?? 0) * SIGNED_IN_AND_KEYS, 0);
  const crossing = people.length * SIGNED_IN_AND_KEYS * largestUsd;
  if (served <= points / POINTS_PER_USD + quota + crossing) return [];
  return [
    {
      rule: "value",
      message: `${served} USD were served to ${people.length} people who had ${points} points and ${quota} USD of quota; one request more in each window would be ${crossing}`,
    },
  ];
}
