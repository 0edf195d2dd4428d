import { type ChatBound, EmbeddingsBound } from "./bound.ts";
import type { Outgoing } from "./outgoing.ts";
import { ABSURD, type ReportedUsage, type UsageReport } from "./usage-tail.ts";
import { type Made, WorkBound } from "./work-bound.ts";

/** How a call ended, as far as what is owed depends on it. */
export interface CallEnd {
  /** Whether the answer is complete; otherwise it was cut short, by either side. */
  isWhole: boolean;
  reported: UsageReport;
  /** Tokens of the text that was delivered, as counted here. Of other work, more than 0 once anything was. */
  delivered: number;
  /** Of work other than chats and vectors: what its answer says about it. */
  made?: Made;
}

export const NOTHING_CAME: CallEnd = { isWhole: false, reported: null, delivered: 0 };

/** What is owed for a call. */
interface OwedUsage extends ReportedUsage {
  isEstimated: boolean;
  /** Set where the price is not by the token. */
  costUsd?: number;
}

type TokenBound = ChatBound | EmbeddingsBound;

interface Circumstances {
  /** The client left, or its key was revoked, after the request had been sent. */
  isOwedUnanswered: boolean;
}

/**
 * For a complete answer, what the upstream reported; otherwise the larger of that and what was counted here. A client
 * that leaves, or whose key is revoked, before any answer owes the prompt, which the upstream has. An upstream that
 * fails without having delivered anything is owed nothing: null.
 */
export function owedFor(
  end: CallEnd,
  bound: TokenBound | WorkBound,
  { isOwedUnanswered }: Circumstances,
): OwedUsage | null {
  if (bound instanceof WorkBound) return owedForWork(end, bound, { isOwedUnanswered });
  const { isWhole, reported, delivered } = end;
  const usage = reported === ABSURD || reported === null ? null : completed(reported, delivered, bound);
  if (isWhole && usage) return usage;
  if (reported === null && delivered === 0 && !isOwedUnanswered) return null;
  return atLeast(usage, bound.countPromptTokens(), isWritten(bound) ? delivered : 0);
}

/**
 * For work with a price of its own, what its answer says was made. Cut short or left, all that was asked for: the
 * upstream has done it, and bills it.
 */
function owedForWork(
  { isWhole, reported, delivered, made }: CallEnd,
  bound: WorkBound,
  { isOwedUnanswered }: Circumstances,
): OwedUsage | null {
  const isDelivered = isWhole || delivered > 0;
  if (!isDelivered && !isOwedUnanswered) return null;
  if (bound.mostUsd !== null) {
    const costUsd = isWhole && made ? bound.costOf(made) : bound.mostUsd;
    return { promptTokens: 0, completionTokens: 0, isEstimated: !isWhole, costUsd };
  }
  const usage = reported === ABSURD ? null : reported;
  const isComplete = usage !== null && (usage.lacks === undefined || usage.lacks === "both");
  if (isWhole && isComplete) return { ...usage, isEstimated: false };
  return atLeast(usage, bound.countPromptTokens(), isDelivered ? bound.countOutputTokens() : 0);
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

/** The answer has tokens of its own; vectors have none. */
const isWritten = (bound: TokenBound): boolean => !(bound instanceof EmbeddingsBound);

/** The report with what it lacks. Of a sum alone, as much is output as was delivered; other gaps are counted. */
function completed(reported: ReportedUsage, delivered: number, bound: TokenBound): OwedUsage {
  const { promptTokens, completionTokens, lacks } = reported;
  if (lacks === "prompt")
    return { promptTokens: bound.countPromptTokens(), completionTokens, isEstimated: true };
  if (lacks === undefined || !isWritten(bound)) return { ...reported, isEstimated: false };
  if (lacks === "completion") return { promptTokens, completionTokens: delivered, isEstimated: true };
  const output = Math.min(promptTokens, delivered);
  return { promptTokens: promptTokens - output, completionTokens: output, isEstimated: false };
}

/** What cannot be true of what the upstream said. It is charged, since the operator chose the upstream, but reported. */
export function problemsIn(
  { isWhole, reported, made }: CallEnd,
  owed: ReportedUsage,
  outgoing: Outgoing,
): string[] {
  const problems = [made?.problem];
  if (reported === ABSURD)
    problems.push("impossible usage figures; the gateway's own count was charged instead");
  else if (reported !== null && isWhole) problems.push(outgoing.implausible(owed) ?? undefined);
  return problems.filter((problem) => problem !== undefined);
}
