import type { ReactNode } from "react";
import { type Answer, canGoOn, isRunning } from "../../lib/chat.ts";
import { compact, money, seconds } from "../../lib/format.ts";
import { Button } from "../controls.tsx";
import { Icon } from "../icons.tsx";
import { Markdown } from "../markdown.tsx";
import { Failure, Note, Status } from "../states.tsx";
import { CopyMessage, Regenerate } from "./message-actions.tsx";
import { ToolCallView } from "./tool-call.tsx";

/** Faster than this, what is measured is the network's bursts and not the model. */
const MEASURED_MS_MIN = 100;

/** `onRetry` offers the turn once more, `onGoOn` the rest of an answer that broke off; `children` stand after it. */
export function AnswerView({
  answer,
  onRetry,
  onGoOn,
  children,
}: {
  answer: Answer;
  onRetry?: () => void;
  onGoOn?: () => void;
  children?: ReactNode;
}) {
  const { state, text, reasoning, toolCalls, error } = answer;
  const retry = onRetry && (
    <Button small icon="refresh" onClick={onRetry}>
      Send again
    </Button>
  );
  return (
    <div className="answer" aria-busy={isRunning(answer)}>
      <Reasoning text={reasoning} />
      {text && <Markdown text={text} />}
      {toolCalls.map((call, i) => (
        <ToolCallView key={call.id ?? i} call={call} />
      ))}
      {state === "waiting" && (
        <p className="muted typing" role="status">
          Waiting for the first token
        </p>
      )}
      {state === "failed" && (
        <>
          {canGoOn(answer) ? (
            <Note tone="warn">
              <strong>The connection was lost while this answer was being written.</strong>
            </Note>
          ) : (
            <Failure error={error} />
          )}
          <div className="row">
            {canGoOn(answer) && onGoOn && (
              <Button small look="primary" onClick={onGoOn}>
                Continue
              </Button>
            )}
            {retry}
          </div>
        </>
      )}
      {children}
      <Stats answer={answer}>
        {!isRunning(answer) && text && <CopyMessage text={text} />}
        {state === "done" && onRetry && <Regenerate onClick={onRetry} />}
        {state === "stopped" && retry}
      </Stats>
    </div>
  );
}

export function Reasoning({ text }: { text: string }) {
  if (!text) return null;
  return (
    <details className="folded">
      <summary>
        <Icon name="memory" /> Reasoning
      </summary>
      <Markdown text={text} />
    </details>
  );
}

/** How the answer came along, and what can be done with it. */
export function Stats({
  answer: { state, usage, firstTokenMs, totalMs, costUsd, finishReason, hasGap },
  children,
}: {
  answer: Answer;
  children?: ReactNode;
}) {
  if (state === "waiting" || state === "failed") return null;
  const writingMs = totalMs - (firstTokenMs ?? 0);
  const speed =
    usage && firstTokenMs !== null && writingMs >= MEASURED_MS_MIN
      ? (usage.completion_tokens / writingMs) * 1000
      : null;
  return (
    <div className="stats">
      {children}
      {state === "stopped" && (
        <Status tone="warn" icon="stop">
          Stopped
        </Status>
      )}
      {hasGap && <Status tone="warn">Words may be missing where the connection was lost</Status>}
      {finishReason === "length" && <Status tone="warn">Cut off at the token limit</Status>}
      {firstTokenMs !== null && <span>{seconds(firstTokenMs)} to the first token</span>}
      {speed !== null && <span>{speed.toFixed(speed < 10 ? 1 : 0)} tokens/s</span>}
      {usage && (
        <span>
          {compact(usage.prompt_tokens)} in, {compact(usage.completion_tokens)} out
        </span>
      )}
      {state === "done" && costUsd !== null && (
        <span>{typeof costUsd === "string" ? costUsd : money(costUsd)}</span>
      )}
    </div>
  );
}
