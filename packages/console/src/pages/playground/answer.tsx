import type { Answer } from "../../lib/chat.ts";
import { compact, money, seconds } from "../../lib/format.ts";
import { Code } from "../../ui/code.tsx";
import { Button } from "../../ui/controls.tsx";
import { Icon } from "../../ui/icons.tsx";
import { Markdown } from "../../ui/markdown.tsx";
import { Failure, Status } from "../../ui/states.tsx";

/** `onRetry` offers a failed turn once more. */
export function AnswerView({ answer, onRetry }: { answer: Answer; onRetry?: () => void }) {
  const { state, text, reasoning, toolCalls, error } = answer;
  return (
    <div className="answer" aria-busy={state === "waiting" || state === "streaming"}>
      {reasoning && (
        <details className="folded">
          <summary>
            <Icon name="memory" /> Reasoning
          </summary>
          <Markdown text={reasoning} />
        </details>
      )}
      {text && <Markdown text={text} />}
      {toolCalls.map((call, i) => (
        <details className="folded" key={call.id ?? i}>
          <summary>
            <Icon name="tool" /> Calls <code>{call.function?.name ?? "a tool"}</code>
          </summary>
          <Code label="Arguments" text={prettyJson(call.function?.arguments ?? "")} />
        </details>
      ))}
      {state === "waiting" && (
        <p className="muted typing" role="status">
          Waiting for the first token
        </p>
      )}
      {state === "failed" && (
        <>
          <Failure error={error} />
          {onRetry && (
            <div>
              <Button small icon="refresh" onClick={onRetry}>
                Send again
              </Button>
            </div>
          )}
        </>
      )}
      <Stats answer={answer} />
    </div>
  );
}

function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function Stats({
  answer: { state, usage, firstTokenMs, totalMs, costUsd, finishReason },
}: {
  answer: Answer;
}) {
  if (state === "waiting" || state === "failed") return null;
  const writingMs = totalMs - (firstTokenMs ?? 0);
  const speed =
    usage && firstTokenMs !== null && writingMs > 0 ? (usage.completion_tokens / writingMs) * 1000 : null;
  return (
    <p className="stats">
      {state === "stopped" && (
        <Status tone="warn" icon="stop">
          Stopped
        </Status>
      )}
      {finishReason === "length" && <Status tone="warn">Cut off at the token limit</Status>}
      {firstTokenMs !== null && <span>{seconds(firstTokenMs)} to the first token</span>}
      {speed !== null && Number.isFinite(speed) && <span>{speed.toFixed(speed < 10 ? 1 : 0)} tokens/s</span>}
      {usage && (
        <span>
          {compact(usage.prompt_tokens)} in, {compact(usage.completion_tokens)} out
        </span>
      )}
      {state === "done" && costUsd !== null && (
        <span>{costUsd === undefined ? "unpriced" : money(costUsd)}</span>
      )}
    </p>
  );
}
