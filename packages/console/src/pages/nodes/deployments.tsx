import type { ModelsProgress } from "@model-gateway/client";
import { useEffect } from "react";
import { client } from "../../lib/client.ts";
import { seconds } from "../../lib/format.ts";
import { invalidate } from "../../lib/query.ts";
import { Store, useStore } from "../../lib/store.ts";
import { Button } from "../../ui/controls.tsx";
import { Meter, Status } from "../../ui/states.tsx";

interface Deployment {
  streamId: string;
  modelId: string;
  startedAtMs: number;
  progress: ModelsProgress | null;
}

const KEY = "model-gateway.deployments";
const KEPT_MAX = 10;
const OVER = new Set(["ready", "failed", "stopped"]);

function stored(): Deployment[] {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "[]") as Deployment[];
  } catch {
    return [];
  }
}

/** Deployments set off in this tab; a reload goes on watching them. */
const deployments = new Store<readonly Deployment[]>(stored());
const watched = new Set<string>();

function keep(list: readonly Deployment[]): void {
  deployments.set(list.slice(-KEPT_MAX));
  sessionStorage.setItem(KEY, JSON.stringify(deployments.get()));
}

async function follow(streamId: string): Promise<void> {
  if (watched.has(streamId)) return;
  watched.add(streamId);
  for await (const { method, params } of client.events(streamId)) {
    if (method !== "models.progress") continue;
    keep(
      deployments
        .get()
        .map((entry) => (entry.streamId === streamId ? { ...entry, progress: params } : entry)),
    );
    if (!OVER.has(params.status)) continue;
    invalidate("agents");
    invalidate("models");
    return;
  }
}

export function watchDeployment({ streamId, modelId }: { streamId: string; modelId: string }): void {
  keep([...deployments.get(), { streamId, modelId, startedAtMs: Date.now(), progress: null }]);
  void follow(streamId);
}

export function Deployments() {
  const list = useStore(deployments);
  useEffect(() => {
    for (const { streamId, progress } of deployments.get())
      if (!OVER.has(progress?.status ?? "")) void follow(streamId);
  }, []);
  if (list.length === 0) return null;
  return (
    <ul className="deployments" aria-label="Deployments">
      {list.map((entry) => (
        <DeploymentRow
          key={entry.streamId}
          entry={entry}
          onDismiss={() => keep(list.filter(({ streamId }) => streamId !== entry.streamId))}
        />
      ))}
    </ul>
  );
}

function DeploymentRow({
  entry: { modelId, startedAtMs, progress },
  onDismiss,
}: {
  entry: Deployment;
  onDismiss(): void;
}) {
  const status = progress?.status ?? "queued";
  const share = (progress?.progress ?? 0) / 100;
  const passedMs = Date.now() - startedAtMs;
  const leftMs = status === "downloading" && share > 0.02 ? (passedMs / share) * (1 - share) : null;
  const tone = status === "ready" ? "good" : status === "failed" ? "bad" : "plain";
  return (
    <li className="stack tight">
      <div className="row between">
        <code>{modelId}</code>
        <span className="row">
          <Status tone={tone} icon={tone === "plain" ? "waiting" : undefined}>
            {status}
            {!OVER.has(status) && `, ${Math.round(share * 100)}%`}
            {leftMs !== null && `, about ${seconds(leftMs)} left`}
          </Status>
          <Button
            look="quiet"
            small
            icon="close"
            aria-label={`Stop watching ${modelId}`}
            onClick={onDismiss}
          />
        </span>
      </div>
      <Meter
        share={status === "ready" ? 1 : share}
        label={`Progress of ${modelId}`}
        tone={tone === "plain" ? undefined : tone}
        tall
        busy={status === "queued" || status === "loading"}
      />
      {progress?.message && <p className="muted small">{progress.message}</p>}
    </li>
  );
}
