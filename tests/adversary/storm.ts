import fc from "fast-check";
import { verifyLedger } from "../../packages/gateway/src/rooms/ledger/index.ts";
import type { Instance } from "../cluster/support/cluster.ts";
import type { Problem } from "./checks.ts";
import { plot } from "./grammar.ts";
import { judge, type Verdict } from "./judge.ts";
import type { Plot } from "./plot.ts";
import { reduce } from "./reduce.ts";
import { Stage, type StageOptions } from "./stage.ts";
import { Tally } from "./tally.ts";

/** Rules whose breach proves nothing while an instance lets requests through unchecked, as it may. */
const ADMISSION_RULES = new Set(["quota", "bound", "value", "served in debt", "served for nothing"]);
const SETTLED_WITHIN_MS = 10_000;

export interface StormOptions extends StageOptions {
  /** The first round's seed; the others follow it. */
  seed: number;
  durationMs: number;
  roundsMax: number;
  /** Rounds that are played side by side, each with people of its own. */
  worlds: number;
  /** Rounds after these, one at a time, in each of which an instance is killed. */
  kills: number;
  /** How long a finding may be made smaller; it is played again each time. */
  shrinkMs: number;
  say: (line: string) => void;
  /** Ends it before its time: nothing that it started is left. */
  interrupted?: AbortSignal;
}

export interface Finding extends Problem {
  seed: number;
  /** The smallest plot found that shows it; null: it shows only after the whole run. */
  plot: Plot | null;
  times: number;
}

export interface StormReport {
  findings: Finding[];
  tally: Tally;
}

/** Plays rounds until the time is up, and tells what was found, each rule with one small reproduction. */
export async function storm(options: StormOptions): Promise<StormReport> {
  const stage = await Stage.open(options);
  const findings = new Map<string, Finding>();
  const tally = new Tally();
  try {
    await Promise.race([play(stage, options, { findings, tally }), aborted(options.interrupted)]);
    tally.letThrough = stage.letThrough;
  } finally {
    await stage.close();
  }
  return { findings: [...findings.values()], tally };
}

const aborted = (signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal?.aborted) resolve();
    signal?.addEventListener("abort", () => resolve());
  });

async function play(
  stage: Stage,
  options: StormOptions,
  { findings, tally }: Pick<Sheet, "findings" | "tally">,
): Promise<void> {
  const { seed, durationMs, roundsMax, worlds, kills } = options;
  const untilMs = Date.now() + durationMs;
  let next = seed;
  const world = async () => {
    while (Date.now() < untilMs && next < seed + roundsMax)
      await playRound(stage, options, { seed: next++, findings, tally });
  };
  await Promise.all(Array.from({ length: worlds }, world));
  for (let n = 0; n < kills; n++)
    await playRound(stage, options, { seed: next++, findings, tally, killed: stage.at(n) });
  for (const { rule, message } of await lastLook(stage))
    findings.set(rule, { rule, message, seed, plot: null, times: 1 });
}

interface Sheet {
  seed: number;
  killed?: Instance;
  findings: Map<string, Finding>;
  tally: Tally;
}

/** One round; what it finds for the first time is made smaller, what is known already is only counted. */
async function playRound(
  stage: Stage,
  { shrinkMs, say }: StormOptions,
  { seed, findings, tally, killed }: Sheet,
): Promise<void> {
  const look = async (play: Plot): Promise<Verdict & { believed: Problem[] }> => {
    const before = stage.letThrough;
    const verdict = await judge(stage, play, killed);
    return { ...verdict, believed: believed(verdict, stage.letThrough > before) };
  };
  const [play] = fc.sample(plot, { seed, numRuns: 1 });
  const verdict = await look(play!);
  tally.add(verdict);
  for (const problem of verdict.believed) {
    const known = findings.get(problem.rule);
    if (known) {
      known.times++;
      continue;
    }
    // Noted at once, so that a round beside this one does not begin with the same.
    const finding: Finding = { ...problem, seed, plot: play!, times: 1 };
    findings.set(problem.rule, finding);
    say(`${problem.rule}: ${problem.message} (seed ${seed})`);
    const shows = async (smaller: Plot) => {
      const same = (await look(smaller)).believed.find(({ rule }) => rule === problem.rule);
      if (same) finding.message = same.message;
      return same !== undefined;
    };
    finding.plot = await reduce(play!, shows, Date.now() + shrinkMs);
  }
}

const believed = ({ problems }: Verdict, hasLetThrough: boolean): Problem[] =>
  hasLetThrough ? problems.filter(({ rule }) => !ADMISSION_RULES.has(rule.split(":")[0]!)) : problems;

/** After the storm: the ledger adds up, nothing is held, nothing is under way, nothing was sent that nobody asked for. */
async function lastLook(stage: Stage): Promise<Problem[]> {
  const problems: Problem[] = [];
  for (const name of ["gateway_holds", "gateway_calls_in_flight"]) {
    let left = await stage.metric(name);
    for (
      const deadline = Date.now() + SETTLED_WITHIN_MS;
      left !== 0 && Date.now() < deadline;
      await Bun.sleep(50)
    )
      left = await stage.metric(name);
    if (left !== 0) problems.push({ rule: name, message: `${name} is ${left} after the storm` });
  }
  const { problems: wrong } = await verifyLedger(stage.db);
  for (const { check, message } of wrong) problems.push({ rule: `ledger: ${check}`, message });
  const total = await stage.db.get<{ total: number }>("SELECT SUM(balance) AS total FROM ledger_accounts");
  if (Number(total?.total) !== 0)
    problems.push({ rule: "ledger", message: `all balances add up to ${total?.total}` });
  if (stage.flights.strays > 0)
    problems.push({
      rule: "strays",
      message: `${stage.flights.strays} requests reached the upstream without a sign of whose they are`,
    });
  return problems;
}
