/** Looks at what a run left behind and says what is wrong with it. Nothing here talks to anything. */
import { leaked } from "./canaries.ts";
import type { Evidence, UsageRow } from "./evidence.ts";
import type { Concluded, FaultRecord, Invoked, JournalRecord } from "./records.ts";

export interface Problem {
  rule: string;
  message: string;
}

/** A call to an upstream, from its journal. */
interface Call {
  upstream: string;
  op: number;
  beganMs: number;
  /** Null: it was still running at the end. */
  endedMs: number | null;
  endedBy: "upstream" | "gateway" | null;
}

/** One operation with everything that was written about it. */
interface Operation {
  op: number;
  invoked: Invoked;
  concluded: Concluded | null;
  calls: Call[];
  rows: UsageRow[];
}

/** How long after its client left a call may go on when nothing else is wrong; 100 ms are usual, see docs/reliability.md. */
const ABORTED_WITHIN_MS = 10_000;
/** What the end of a fault may still do to requests. */
const AFTERMATH_MS = 3_000;
/** A plain model is asked once; a route may go on to another target, and asks at most six. A node has no journal. */
const CALLS_MAX: Record<string, number> = { m: 1, route: 6, tiny: 0 };
/**
 * A request on a kept connection that was closed at that moment is sent once more (docs/decisions/012): within 250 ms,
 * which a busy machine may write down later.
 */
const CROSSED_MS_MAX = 1_000;
/** On each of two backends, the second of which is asked when the first cannot be reached. */
const CROSSINGS_MAX = 2;
/** A process may grow by as much; what leaks shows in runs of different lengths. */
const GROWTH_MB_MAX = 96;

export function check(evidence: Evidence): Problem[] {
  const operations = join(evidence);
  return [
    ...ledgerProblems(evidence),
    ...rowProblems(operations, evidence),
    ...callProblems(operations, evidence.faults),
    ...endProblems(operations, evidence.faults),
    ...restProblems(evidence),
    ...canaryProblems(evidence),
    ...toldProblems(evidence),
  ];
}

const isConcluded = (record: Evidence["clients"][number]): record is Concluded => record.type !== "invoke";

function join({ clients, upstreams, books }: Evidence): Map<number, Operation> {
  const operations = new Map<number, Operation>();
  for (const record of clients)
    if (record.type === "invoke")
      operations.set(record.op, { op: record.op, invoked: record, concluded: null, calls: [], rows: [] });
  for (const record of clients)
    if (isConcluded(record)) {
      const operation = operations.get(record.op);
      if (operation) operation.concluded = record;
    }
  for (const call of callsIn(upstreams)) operations.get(call.op)?.calls.push(call);
  for (const row of books.rows) operations.get(operationOf(row))?.rows.push(row);
  return operations;
}

const operationOf = ({ ref }: UsageRow): number => Number(ref?.replace("op-", "") ?? Number.NaN);

function callsIn(journal: readonly JournalRecord[]): Call[] {
  const calls = new Map<string, Call>();
  for (const record of journal) {
    const key = `${record.upstream} ${record.id}`;
    if (record.event === "request") {
      const { upstream, op, atMs: beganMs } = record;
      calls.set(key, { upstream, op, beganMs, endedMs: null, endedBy: null });
      continue;
    }
    const call = calls.get(key);
    if (call && record.event === "ended") Object.assign(call, { endedMs: record.atMs, endedBy: record.by });
  }
  return [...calls.values()];
}

/** Whether one of these faults was under way, or had just ended, between two moments. */
function happened(
  faults: readonly FaultRecord[],
  when: { fromMs: number; toMs: number },
  concerns: (fault: FaultRecord) => boolean,
): boolean {
  return faults.some(
    (fault) => fault.beganMs <= when.toMs && fault.endedMs + AFTERMATH_MS >= when.fromMs && concerns(fault),
  );
}

function ledgerProblems({ books }: Evidence): Problem[] {
  const { ledgerProblems, accounts, rows, pool } = books;
  const problems = ledgerProblems.map((message) => ({ rule: "ledger", message }));
  const sum = accounts.reduce((total, { balance }) => total + balance, 0);
  if (sum !== 0) problems.push({ rule: "sums", message: `all balances add up to ${sum}` });
  if (pool.left + pool.paid - pool.owed !== pool.issued) {
    const { left, paid, owed, issued } = pool;
    const message = `the pool has ${left} points, paid ${paid}, owes ${owed} and was given ${issued}`;
    problems.push({ rule: "sums", message });
  }
  for (const { id, type, balance } of accounts)
    if ((type === "user" || type === "group") && balance < 0)
      problems.push({ rule: "negative", message: `${id} has ${balance} points` });
  for (const { id, promptTokens, completionTokens, costUsd, points } of rows)
    if ([promptTokens, completionTokens, costUsd ?? 0, points ?? 0].some((figure) => !(figure >= 0)))
      problems.push({ rule: "negative", message: `the usage row ${id} has a figure below zero` });
  return problems;
}

/** How many rows an operation must have; null: none or one, which nobody can know. */
function rowsDue({ invoked, concluded, calls }: Operation, faults: readonly FaultRecord[]): 0 | 1 | null {
  if (!concluded) return null;
  if (concluded.type === "ok") return 1;
  if (concluded.ended === "error" && concluded.status === 200) return concluded.pieces > 0 ? 1 : null;
  const isJournaled = CALLS_MAX[invoked.model] !== 0;
  if (concluded.type === "fail") return isJournaled && calls.length === 0 ? 0 : null;
  // Left after it was sent: the prompt is owed, unless the process died before it could write that down.
  const when = { fromMs: invoked.atMs, toMs: concluded.atMs + ABORTED_WITHIN_MS };
  const mayHaveDied = happened(
    faults,
    when,
    ({ kind, target }) => kind === "kill" && target === invoked.instance,
  );
  // Of an upstream that was lost at the same moment nobody can say which came first.
  const wasSent = calls.some(
    ({ endedBy, upstream }) =>
      endedBy === "gateway" &&
      !happened(faults, when, ({ target }) => target.endsWith(`upstream ${upstream}`)),
  );
  return concluded.ended === "left" && wasSent && !mayHaveDied && !isLineBroken(invoked, when, faults)
    ? 1
    : null;
}

const isLineBroken = (
  { instance }: Invoked,
  when: { fromMs: number; toMs: number },
  faults: readonly FaultRecord[],
): boolean => happened(faults, when, ({ target }) => target === `line ${instance}`);

function rowProblems(operations: ReadonlyMap<number, Operation>, { books, faults }: Evidence): Problem[] {
  const problems: Problem[] = [];
  for (const operation of operations.values()) {
    const { op, rows, concluded } = operation;
    const due = rowsDue(operation, faults);
    const what = `op-${op} (${concluded?.type ?? "no end"}, ${concluded?.ended}, ${concluded?.requestId})`;
    if (rows.length > 1) problems.push({ rule: "doubled", message: `${what} has ${rows.length} usage rows` });
    else if (due === 1 && rows.length === 0)
      problems.push({ rule: "lost", message: `${what} has no usage row` });
    else if (due === 0 && rows.length === 1)
      problems.push({ rule: "unserved", message: `${what} has a usage row, and no upstream had it` });
  }
  for (const row of books.rows)
    if (!operations.has(operationOf(row)))
      problems.push({ rule: "stray", message: `the usage row ${row.id} belongs to nothing that was asked` });
  return problems;
}

/** Whether something stood between a client that left and the upstream that should hear of it. */
const delays = ({ instance }: Invoked, { upstream }: Call) => {
  const between = new Set([
    instance,
    `line ${instance}`,
    `line upstream ${upstream}`,
    `upstream ${upstream}`,
  ]);
  return ({ target }: FaultRecord) => between.has(target);
};

/** What a reset follows may never arrive, so bytes that were sent say nothing. */
const hasCrossed = ({ beganMs, endedMs }: Call): boolean =>
  endedMs !== null && endedMs - beganMs <= CROSSED_MS_MAX;

function callProblems(operations: ReadonlyMap<number, Operation>, faults: readonly FaultRecord[]): Problem[] {
  const problems: Problem[] = [];
  for (const { op, invoked, concluded, calls } of operations.values()) {
    const callsMax = CALLS_MAX[invoked.model] ?? 1;
    if (
      calls.filter((call) => !hasCrossed(call)).length > callsMax ||
      calls.length > 2 * callsMax + CROSSINGS_MAX
    )
      problems.push({ rule: "repeated", message: `op-${op} was sent to upstreams ${calls.length} times` });
    const firstByteMs = concluded?.firstByteMs ?? null;
    if (firstByteMs !== null && calls.some(({ beganMs }) => beganMs > firstByteMs))
      problems.push({
        rule: "retried",
        message: `op-${op} was sent again after its client had a part of it`,
      });
    for (const call of calls) {
      if (call.endedMs === null) {
        problems.push({ rule: "running", message: `op-${op} still runs on upstream ${call.upstream}` });
        continue;
      }
      if (concluded?.ended !== "left") continue;
      const delay = delays(invoked, call);
      const freeMs = faults.filter(delay).reduce((ms, { endedMs }) => Math.max(ms, endedMs), concluded.atMs);
      if (call.endedMs - freeMs > ABORTED_WITHIN_MS)
        problems.push({
          rule: "left running",
          message: `op-${op} ran on for ${call.endedMs - concluded.atMs} ms without its client`,
        });
    }
  }
  return problems;
}

/** Every request must come to an end that its client can understand, unless the way to it was taken. */
function endProblems(operations: ReadonlyMap<number, Operation>, faults: readonly FaultRecord[]): Problem[] {
  const problems: Problem[] = [];
  for (const { op, invoked, concluded } of operations.values()) {
    if (!concluded) {
      problems.push({ rule: "no end", message: `op-${op} never came to an end` });
      continue;
    }
    const { ended, atMs, error } = concluded;
    if (ended === "timeout") problems.push({ rule: "no end", message: `op-${op} was never answered` });
    if (ended !== "cut" && ended !== "none") continue;
    const when = { fromMs: invoked.atMs, toMs: atMs };
    const isAway = happened(
      faults,
      when,
      ({ kind, target }) =>
        (target.endsWith(invoked.instance) &&
          (kind === "kill" || (kind === "restart" && ended === "none"))) ||
        target === `line ${invoked.instance}`,
    );
    if (!isAway)
      problems.push({
        rule: "cut",
        message: `op-${op} ended (${ended}) without [DONE] or an error, on ${invoked.instance}: ${error}`,
      });
  }
  return problems;
}

function restProblems({ instances, sharedHolds }: Evidence): Problem[] {
  const problems: Problem[] = [];
  for (const { name, holds, callsInFlight, journalRows, rowsLost, rssMbBefore, rssMbAfter } of instances) {
    const say = (rule: string, message: string) => problems.push({ rule, message: `${name}: ${message}` });
    if (holds !== 0) say("holds", `${holds} holds outlived their requests`);
    if (callsInFlight !== 0) say("in flight", `${callsInFlight} calls are still under way`);
    if (journalRows !== 0) say("journal", `${journalRows} rows are still not in the database`);
    if (rowsLost !== 0) say("lost", `${rowsLost} rows were given up`);
    if (rssMbBefore !== null && rssMbAfter - rssMbBefore > GROWTH_MB_MAX)
      say("memory", `grew from ${Math.round(rssMbBefore)} MB to ${Math.round(rssMbAfter)} MB`);
  }
  for (const hold of sharedHolds) problems.push({ rule: "holds", message: `Redis still has ${hold}` });
  return problems;
}

/** Whichever process a connection reaches, it is told the same. */
function toldProblems({ told }: Evidence): Problem[] {
  return told
    .filter(({ answers }) => new Set(answers).size !== 1)
    .map(({ what, answers }) => ({
      rule: "as one",
      message: `${what}: ${[...new Set(answers)].join(" | ")}`,
    }));
}

function canaryProblems({ texts, clients, upstreams, canaries }: Evidence): Problem[] {
  const problems: Problem[] = [];
  const look = (where: string, text: string, never: readonly (keyof Evidence["canaries"])[]) => {
    for (const name of never)
      if (leaked(text, [canaries[name]].flat()).length > 0)
        problems.push({ rule: "canary", message: `${name} is in ${where}` });
  };
  for (const { where, text, never } of texts) look(where, text, never);
  const errors = clients.filter(isConcluded).map(({ op, error }) => ({ op, error }));
  for (const { op, error } of errors)
    if (error !== "") look(`the error of op-${op}`, error, ["prompt", "upstreamKey", "userKeys"]);
  const sent = upstreams.map((record) => (record.event === "request" ? record.bytes : "")).join("\n");
  look("what upstreams were sent", sent, ["userKeys"]);
  return problems;
}
