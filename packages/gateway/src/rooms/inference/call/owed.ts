import { type ChatBound, EmbeddingsBound } from "./bound.ts";
import type { Outgoing } from "./outgoing.ts";
import { ABSURD, type ReportedUsage, type UsageReport } from "./usage-tail.ts";
import { type Made, WorkBound } from "./work-bound.ts";

/** How a call ended; decides what is owed. */
export interface CallEnd {
  /** Whether the answer is complete; otherwise one side cut it short. */
  isWhole: boolean;
  /** The gateway stopped it because the payer cannot cover more. */
  isStopped?: boolean;
  reported: UsageReport;
  /** Our own count of the delivered text's tokens. For work that is not text: above 0 once anything was delivered. */
  delivered: number;
  /** Calls of the vendor's own tools that the answer shows. */
  toolCalls?: readonly string[];
  /** For work other than chats and vectors: what the answer says was made. */
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
  /** It was sent and then ended on our side: client gone, cancelled, revoked, our deadline, or shutdown. */
  isOwedUnanswered: boolean;
  /** For a truncated answer: output tokens that the model can have produced by then, visible or hidden. */
  writtenTokens: number;
}

/** What is owed: the report of a complete answer, else the largest of report, count and possible output. Null: nothing. */
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

/** Work with a unit price owes what its answer says was made; if it was cut short, all that was asked for. */
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

/** The larger of the report and our count. */
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

/** Fills the gaps of a report. If only the sum is reported, the delivered tokens count as output. */
function completed(reported: ReportedUsage, delivered: number, bound: TokenBound): OwedUsage {
  const { promptTokens, completionTokens, lacks } = reported;
  if (lacks === "prompt") return { promptTokens: bound.promptTokens, completionTokens, isEstimated: true };
  if (lacks === undefined || !isWritten(bound)) return { ...reported, isEstimated: false };
  if (lacks === "completion") return { promptTokens, completionTokens: delivered, isEstimated: true };
  const output = Math.min(promptTokens, delivered);
  return { promptTokens: promptTokens - output, completionTokens: output, isEstimated: false };
}

/** Implausible figures of the upstream. They are charged, because the operator chose the upstream, and flagged. */
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
