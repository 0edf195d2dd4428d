import type { Notifications, Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { Status } from "../../ui/states.tsx";

type Trial = Omit<Notifications["backends.progress"], "stream_id">;
type Tested = Result<"backends.test">;

/** The service wants a UUID; `crypto.randomUUID` exists on secure origins only. */
function newStreamId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Runs a backend's test; `trials` are those that have ended so far. */
export function useContact(): {
  trials: readonly Trial[];
  run(given: Record<string, unknown>): Promise<Tested>;
} {
  const [trials, setTrials] = useState<readonly Trial[]>([]);
  const run = async (given: Record<string, unknown>) => {
    const stream_id = newStreamId();
    const leaving = new AbortController();
    setTrials([]);
    const follow = async () => {
      for await (const { method, params } of client.events(stream_id, { signal: leaving.signal }))
        if (method === "backends.progress") setTrials((known) => [...known, params]);
    };
    follow().catch(() => {});
    try {
      return await api("backends.test", { ...given, stream_id });
    } finally {
      leaving.abort();
      setTrials([]);
    }
  };
  return { trials, run };
}

export function Trials({ trials }: { trials: readonly Trial[] }) {
  return (
    <ul className="lines" aria-label="Trials">
      {trials.map(({ name, ok, detail }) => (
        <li key={name}>
          <Status tone={ok ? "good" : "plain"} icon={ok ? undefined : "close"}>
            {name}
          </Status>
          <span className="muted small">{detail}</span>
        </li>
      ))}
    </ul>
  );
}

/** Which coding agents can work with a backend. */
export function Agents({ agents }: { agents: Tested["agents"] }) {
  return (
    <span className="row wrap">
      {agents.map(({ name, ok, detail }) => (
        <Status key={name} tone={ok ? "good" : "bad"}>
          <span title={detail}>
            {name} {ok ? "✓" : `✗ (${detail})`}
          </span>
        </Status>
      ))}
    </span>
  );
}

/** What a test has shown, in short, and every trial of it on demand. */
export function Seen({ seen, agents }: Pick<Tested, "agents"> & { seen: NonNullable<Tested["seen"]> }) {
  return (
    <div className="stack tight">
      <Agents agents={agents} />
      <p className="muted small">
        Speaks {seen.dialects.join(", ") || "no chat API"}
        {seen.model && `; ${seen.model} was asked`}. {seen.prompt_tokens} tokens in and{" "}
        {seen.completion_tokens} out were used, and charged to nobody here.
      </p>
      <details className="folded">
        <summary>{seen.trials.length} trials</summary>
        <Trials trials={seen.trials} />
      </details>
    </div>
  );
}
