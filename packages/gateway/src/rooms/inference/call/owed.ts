import { type ChatBound, EmbeddingsBound } from "./bound.ts";
import type { Outgoing } from "./outgoing.ts";
import { ABSURD, type ReportedUsage, type UsageReport } from "./usage-tail.ts";
import { type Made, WorkBound } from "./work-bound.ts";

/** How a call ended, as far as what is owed depends on it. */
export interface CallEnd {
  /** Whether the answer is complete; otherwise it was cut short, by either side. */
  isWhole: boolean;
  /** The gateway ended it: the payer cannot cover more. */
  isStopped?: boolean;
  reported: UsageReport;
  /** Tokens of the text that was delivered, as counted here. Of other work, more than 0 once anything was. */
  delivered: number;
  /** Calls of the vendor's own tools that it shows. */
  toolCalls?: readonly string[];
  /** Of work other than chats and vectors: what its answer says about it. */
  made?: Made;
}

export const NOTHING_CAME: CallEnd = { isWhole: false, reported: null, delivered: 0 };

interface OwedUsage extends ReportedUsage {
  isEstimated: boolean;
  isUntold?: boolean;
  costUsd?: number;
}

type TokenBound = ChatBound | EmbeddingsBound;

interface Circumstances {
  /** It was sent, and ended on this side: left, cancelled, revoked, or by the gateway's own deadline or stop. */
  isOwedUnanswered: boolean;
  /** Of an answer that was cut short: output tokens that the model can have written by then, seen or not. */
  writtenTokens: number;
}

/** What was sent is owed: the report of a complete answer, else the larger of report, count and what was written. Null: nothing. */
export function owedFor(
  end: CallEnd,
  bound: TokenBound | WorkBound,
  { isOwedUnanswered, writtenTokens }: Circumstances,
): OwedUsage | null {
  if (bound instanceof WorkBound) return owedForWork(end, bound, isOwedUnanswered);
  const { isWhole, reported, delivered } = end;
  const usage = reported === ABSURD || reported === null ? null : completed(reported, delivered, bound);
  if (isWhole && usage) return usage;
  if (reported === null && delivered === 0 && !isOwedUnanswered) return null;
  const counted = atLeast(
    usage,
    bound.promptTokens,
    isWritten(bound) ? Math.max(delivered, writtenTokens) : 0,
  );
  return { ...counted, isUntold: !isWhole && usage === null };
}

/** For work with a price of its own, what its answer says was made. Cut short or left, all that was asked for. */
function owedForWork(
  { isWhole, reported, delivered, made }: CallEnd,
  bound: WorkBound,
  isOwedUnanswered: boolean,
): OwedUsage | null {
  if (!isWhole && delivered === 0 && !isOwedUnanswered) return null;
  if (bound.mostUsd !== null) {
    const costUsd = bound.costOf((isWhole && made) || {});
    return { promptTokens: 0, completionTokens: 0, isEstimated: !isWhole, costUsd };
  }
  const usage = reported === ABSURD ? null : reported;
  const isComplete = usage !== null && (usage.lacks === undefined || usage.lacks === "both");
  if (isWhole && isComplete) return { ...usage, isEstimated: false };
  return atLeast(
    usage,
    bound.countedPromptTokens,
    isWhole ? bound.countOutputTokens() : bound.outputTokensMax,
  );
}

/** What was reported, or what was counted where that is more. */
const atLeast = (
  reported: ReportedUsage | null,
  promptTokens: number,
  completionTokens: number,
): OwedUsage => ({
  ...reported,
  promptTokens: Math.max(reported?.promptTokens ?? 0, promptTokens),
  completionTokens: Math.max(reported?.completionTokens ?? 0, completionTokens),
  isEstimated: true,
});

const isWritten = (bound: TokenBound): boolean => !(bound instanceof EmbeddingsBound);

/** The report with what it lacks. Of a sum alone, as much is output as was delivered; other gaps are counted. */
function completed(reported: ReportedUsage, delivered: number, bound: TokenBound): OwedUsage {
  const { promptTokens, completionTokens, lacks } = reported;
  if (lacks === "prompt") return { promptTokens: bound.promptTokens, completionTokens, isEstimated: true };
  if (lacks === undefined || !isWritten(bound)) return { ...reported, isEstimated: false };
  if (lacks === "completion") return { promptTokens, completionTokens: delivered, isEstimated: true };
  const output = Math.min(promptTokens, delivered);
  return { promptTokens: promptTokens - output, completionTokens: output, isEstimated: false };
}

/** What cannot be true of what the upstream said. It is charged, since the operator chose the upstream, but reported. */
export function problemsIn(
  { isWhole, reported, made }: CallEnd,
  owed: OwedUsage,
  outgoing: Outgoing,
): string[] {
  const problems = [made?.problem];
  const heldUsd = outgoing.bound instanceof WorkBound ? outgoing.bound.mostUsd : null;
  if (heldUsd !== null && owed.costUsd! > heldUsd)
    problems.push(`work for ${owed.costUsd} USD, where what was asked for costs ${heldUsd} USD at most`);
  if (reported === ABSURD)
    problems.push("impossible usage figures; the gateway's own count was charged instead");
  else if (reported !== null && isWhole) problems.push(outgoing.implausible(owed) ?? undefined);
  return problems.filter((problem) => problem !== undefined);
}
