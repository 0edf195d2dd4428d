import type { Books, Row } from "./books.ts";
import type { Problem } from "./checks.ts";
import { isBrokenOff, numberOf } from "./flights.ts";
import type { WorkName } from "./plot.ts";
import { onlyFolds } from "./spelling.ts";
import type { WorkJob } from "./works.ts";

const USD_EPSILON = 1e-9;
const IMAGES: ReadonlySet<WorkName> = new Set(["images", "edits"]);

/** What the upstream did for a client that has it, or that went away and is billed all the same. */
export const servedUsd = ({ task, status, left }: WorkJob): number =>
  task.end === "whole" && (status === 200 || left) ? (task.worthUsd ?? 0) : 0;

export const isWorkComplete = (rows: readonly Row[], jobs: readonly WorkJob[]): boolean =>
  jobs.every((job) => servedUsd(job) === 0 || workRows(rows, job).length > 0);

export const workRows = (rows: readonly Row[], { payer, number }: WorkJob) =>
  rows.filter(({ userId, model }) => userId === payer.userId && numberOf(model) === number);

/** Work is paid by what the upstream was asked for and made, once, and only when there is something. */
export function checkWorks(books: Books, jobs: readonly WorkJob[]): Problem[] {
  return jobs.flatMap((job) => {
    const { step, task, status, left, words } = job;
    const rows = workRows(books.rows, job);
    const paid = rows.reduce((sum, { costUsd }) => sum + (costUsd ?? 0), 0);
    const about = `${step.kind}, ${step.amount} of ${step.size}, ${JSON.stringify(step.members)}: status ${status}${left ? ", left" : ""}, upstream ${task.end} with ${task.worthUsd} USD; ${rows.length} rows of ${paid} USD; ${words}`;
    const problem = (rule: string): Problem[] => [
      { rule: `${rule}: ${step.kind}${left ? ", left" : ""}`, message: about },
    ];
    if (words.startsWith("no answer in time")) return problem("no end");
    if (status === 500 && !words.includes("unhealthy")) return problem("internal error");
    if (rows.length > 1) return problem("one row");
    const [wrong] = task.worthUsd === null ? [] : step.members.filter(onlyFolds);
    if (wrong) return problem("forbidden");
    const due = servedUsd(job);
    if (paid < due - USD_EPSILON) return problem(rows.length === 0 ? "no row" : "underpaid");
    // Broken off by the asker or by a revocation: what was sent is owed, even if the upstream had not read it yet.
    if (isBrokenOff({ left, words })) return [];
    if (due === 0 && rows.length > 0) return problem("paid for nothing");
    // Of a size that is left open the gateway takes the dearest.
    const isOpen = IMAGES.has(step.kind) && (step.size === null || step.size === "auto");
    const isPlain = step.members.length === 0 && !isOpen;
    if (isPlain && Math.abs(paid - due) > USD_EPSILON) return problem("priced");
    return [];
  });
}
