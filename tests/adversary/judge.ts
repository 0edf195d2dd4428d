import type { Instance } from "../cluster/support/cluster.ts";
import { type Books, quiesce, type Row, readBooks } from "./books.ts";
import {
  checkClips,
  checkPoints,
  checkQuotas,
  checkRequests,
  checkSums,
  isComplete,
  type Plan,
  type Problem,
} from "./checks.ts";
import { checkBounds, checkValue } from "./covers.ts";
import type { Plot } from "./plot.ts";
import type { Population } from "./population.ts";
import { payDebts, probe } from "./probes.ts";
import { Round } from "./round.ts";
import type { Stage } from "./stage.ts";
import { checkWorks, isWorkComplete } from "./work-checks.ts";

export interface Verdict {
  problems: Problem[];
  round: Round;
  books: Books;
}

const LOOKS_MAX = 3;

/** What everyone is told about the month, against the rows. */
async function checkPlans(stage: Stage, { people }: Population, books: Books): Promise<Problem[]> {
  const plans = await Promise.all(
    people.map(({ token }, i) => stage.at(i).rpc<Plan>("billing.plan", {}, token)),
  );
  return people.flatMap((someone, i) => checkSums(books, someone, plans[i]!));
}

/**
 * Plays a plot with people of its own, and holds what was recorded against what the upstream served. Between the two
 * an instance may be killed: nothing that was settled may be lost or doubled by that.
 */
export async function judge(stage: Stage, plot: Plot, killed: Instance | null = null): Promise<Verdict> {
  const round = await Round.play(stage, plot);
  const { population, flights, works } = round;
  const areBooked = (rows: readonly Row[]) => isComplete(rows, flights) && isWorkComplete(rows, works);
  try {
    if (killed) await stage.killAndRestart(killed);
    await quiesce(stage, population, flights);
    await round.readConversations();
    let books = await readBooks(stage, population, areBooked);
    let sums = await checkPlans(stage, population, books);
    // A request that was left is settled a moment later, perhaps between the two looks.
    for (let looks = 0; sums.length > 0 && looks < LOOKS_MAX; looks++) {
      books = await readBooks(stage, population, areBooked);
      sums = await checkPlans(stage, population, books);
    }
    const problems = [
      ...checkRequests(books, flights),
      ...checkClips(books, round.clips),
      ...checkWorks(books, works),
      ...checkBounds(round),
      ...checkValue(round),
      ...checkQuotas(books, population, round),
      ...checkPoints(books, round, population),
      ...sums,
    ];
    problems.push(...(await probe(round, books)), ...(await payDebts(round, books)));
    return { problems, round, books };
  } finally {
    round.forget();
  }
}
