import { api } from "../../lib/api.ts";
import { count, exactTime, seconds } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { Copyable, LinkButton } from "../../ui/controls.tsx";
import { Dialog } from "../../ui/dialogs.tsx";
import { Loaded } from "../../ui/states.tsx";
import { TokenFacts } from "../../ui/token-facts.tsx";
import { CapturedText, type FullRecord, KeyCapture, Replay } from "./captured.tsx";
import type { RequestRecord } from "./data.ts";
import { keyInWords, OutcomeStatus, reasonInWords } from "./words.tsx";

interface Part {
  label: string;
  kind: "queue" | "failed" | "waiting" | "answer";
  fromMs: number;
  toMs: number;
  note?: string;
}

/** What the time of a request went into, in order. */
function partsOf(record: RequestRecord): Part[] {
  const { queue_ms, first_token_ms, duration_ms, failed_attempts, backend, attempts, outcome } = record;
  const parts: Part[] = [];
  const isSent = attempts > 0;
  if (!isSent) return [{ label: "In the gateway", kind: "queue", fromMs: 0, toMs: duration_ms }];
  parts.push({ label: "Before it was sent", kind: "queue", fromMs: 0, toMs: queue_ms });
  for (const attempt of failed_attempts)
    parts.push({
      label: attempt.backend,
      kind: "failed",
      fromMs: attempt.from_ms,
      toMs: attempt.to_ms,
      note: attempt.message,
    });
  // The last attempt failed, too: nothing came after it.
  if (failed_attempts.length >= attempts && outcome !== "ok") return parts;
  const sentMs = failed_attempts.at(-1)?.to_ms ?? queue_ms;
  if (first_token_ms === null) {
    parts.push({ label: backend ?? "Backend", kind: "answer", fromMs: sentMs, toMs: duration_ms });
    return parts;
  }
  parts.push({ label: `${backend}: first token`, kind: "waiting", fromMs: sentMs, toMs: first_token_ms });
  parts.push({ label: "Answer", kind: "answer", fromMs: first_token_ms, toMs: duration_ms });
  return parts;
}

function Waterfall({ record }: { record: RequestRecord }) {
  const parts = partsOf(record);
  const wholeMs = Math.max(1, record.duration_ms, ...parts.map(({ toMs }) => toMs));
  return (
    <ol className="waterfall" aria-label={`Where ${seconds(record.duration_ms)} went`}>
      {parts.map(({ label, kind, fromMs, toMs, note }, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the parts of a finished request do not change
        <li key={i}>
          <span className="ellipsis" title={label}>
            {label}
          </span>
          <span className="track">
            <i
              className={kind}
              style={{
                marginLeft: `${(100 * fromMs) / wholeMs}%`,
                width: `${(100 * Math.max(0, toMs - fromMs)) / wholeMs}%`,
              }}
            />
          </span>
          <span className="num">{seconds(Math.max(0, toMs - fromMs))}</span>
          {note && <span className="upstream-words bad">{note}</span>}
        </li>
      ))}
    </ol>
  );
}

/** Everything that is known of one request. */
export function RequestSheet({ id, onClose }: { id: string; onClose(): void }) {
  const query = useQuery(`request ${id}`, () => api("requests.get", { id }));
  return (
    <Dialog title="Request" kind="sheet" onClose={onClose}>
      <Loaded query={query}>{(record) => <Known record={record} />}</Loaded>
    </Dialog>
  );
}

function Known({ record }: { record: FullRecord }) {
  const { model, model_asked, backend, reason, message, tokens_per_second, cost_usd, ref_id } = record;
  const shownModel = model ?? model_asked;
  return (
    <div className="stack">
      <div className="row between wrap">
        <OutcomeStatus record={record} />
        <span className="muted">{exactTime(record.at)}</span>
      </div>
      {message && <p className="upstream-words">{message}</p>}
      <Waterfall record={record} />
      <dl className="facts">
        <dt>Called</dt>
        <dd className="mono">{record.surface}</dd>
        {shownModel && (
          <>
            <dt>Model</dt>
            <dd className="mono">
              {shownModel}
              {model && model_asked && <span className="muted"> asked for as {model_asked}</span>}
            </dd>
          </>
        )}
        {backend && (
          <>
            <dt>Backend</dt>
            <dd>
              {backend}
              {reason && <span className="muted">: {reasonInWords(reason)}</span>}
            </dd>
          </>
        )}
        {record.attempts > 1 && (
          <>
            <dt>Attempts</dt>
            <dd>{count(record.attempts)}</dd>
          </>
        )}
        {record.prompt_tokens + record.completion_tokens > 0 && (
          <>
            <TokenFacts used={record} costUsd={cost_usd} />
            {tokens_per_second !== null && (
              <>
                <dt>Speed</dt>
                <dd>{count(tokens_per_second)} tokens a second</dd>
              </>
            )}
          </>
        )}
        <dt>Made with</dt>
        <dd>
          {keyInWords(record)}
          {record.key_prefix && record.user_email && <span className="muted"> of {record.user_email}</span>}
          {record.project && <span className="muted">, project {record.project}</span>}
        </dd>
        {ref_id && (
          <>
            <dt>Reference</dt>
            <dd>{ref_id}</dd>
          </>
        )}
        {record.client_ip && (
          <>
            <dt>Came from</dt>
            <dd>{record.client_ip}</dd>
          </>
        )}
        <dt>Request id</dt>
        <dd>
          <Copyable text={record.id} />
        </dd>
      </dl>
      <div className="row wrap">
        {shownModel && <Replay record={record} model={shownModel} />}
        {model && (
          <LinkButton href={`/requests?model=${encodeURIComponent(model)}`} icon="search">
            Requests of this model
          </LinkButton>
        )}
      </div>
      <CapturedText record={record} />
      {record.key_id && <KeyCapture keyId={record.key_id} name={keyInWords(record)} />}
    </div>
  );
}
