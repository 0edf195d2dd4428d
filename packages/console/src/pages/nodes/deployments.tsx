import type { ModelsProgress } from "@model-gateway/client";
import { useEffect, useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { rate, seconds } from "../../lib/format.ts";
import { invalidate } from "../../lib/query.ts";
import { Store, useStore } from "../../lib/store.ts";
import { toastError } from "../../lib/toast.ts";
import { leftMsOf, readTransfer, SAMPLES_MAX, type Sample } from "../../lib/transfer.ts";
import { Button } from "../../ui/controls.tsx";
import { Meter, Status } from "../../ui/states.tsx";

interface Deployment {
  streamId: string;
  modelId: string;
  progress: ModelsProgress | null;
  /** Of the phase that it is in, oldest first. */
  samples: readonly Sample[];
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

function withProgress(entry: Deployment, progress: ModelsProgress): Deployment {
  const before = entry.progress?.status === progress.status ? entry.samples : [];
  const samples = [...before, { atMs: Date.now(), progress: progress.progress }].slice(-SAMPLES_MAX);
  return { ...entry, progress, samples };
}

function record(streamId: string, progress: ModelsProgress): void {
  keep(
    deployments.get().map((entry) => (entry.streamId === streamId ? withProgress(entry, progress) : entry)),
  );
}

async function follow(streamId: string): Promise<void> {
  if (watched.has(streamId)) return;
  watched.add(streamId);
  for await (const { method, params } of client.events(streamId)) {
    if (method !== "models.progress") continue;
    record(streamId, params);
    if (!OVER.has(params.status)) continue;
    invalidate("agents");
    invalidate("models");
    return;
  }
}

export function watchDeployment({ streamId, modelId }: { streamId: string; modelId: string }): void {
  keep([...deployments.get(), { streamId, modelId, progress: null, samples: [] }]);
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
  entry: { modelId, progress, samples },
  onDismiss,
}: {
  entry: Deployment;
  onDismiss(): void;
}) {
  const [stopping, setStopping] = useState(false);
  const status = progress?.status ?? "queued";
  const share = (progress?.progress ?? 0) / 100;
  const transfer = status === "downloading" ? readTransfer(progress?.message) : null;
  const leftMs =
    status === "downloading" && !progress?.message?.endsWith(" left") ? leftMsOf(samples, transfer) : null;
  const tone = status === "ready" ? "good" : status === "failed" ? "bad" : "plain";
  const over = OVER.has(status);
  // A server that does not say how large the file is: bytes arrive, but of how many nobody knows.
  const sizeUnknown = status === "downloading" && share === 0 && transfer === null;
  const cancel = async (latest: ModelsProgress) => {
    setStopping(true);
    try {
      await api("agents.stop", { agent_id: latest.agent_id, model_id: modelId });
      // A node that had not begun has nothing to say about the end.
      record(latest.stream_id, { ...latest, status: "stopped", message: undefined });
      invalidate("agents");
    } catch (error) {
      toastError(error);
    }
    setStopping(false);
  };
  return (
    <li className="stack tight">
      <div className="row between wrap">
        <code className="ellipsis">{modelId}</code>
        <span className="row">
          <Status tone={tone} icon={over ? (status === "stopped" ? "stop" : undefined) : "waiting"}>
            {status}
            {!over && !sizeUnknown && `, ${Math.round(share * 100)}%`}
            {transfer?.bytesPerSecond != null && `, ${rate(transfer.bytesPerSecond)}`}
            {leftMs !== null && `, about ${seconds(leftMs)} left`}
          </Status>
          {over ? (
            <Button look="quiet" small icon="close" aria-label={`Dismiss ${modelId}`} onClick={onDismiss} />
          ) : (
            <Button
              small
              icon="stop"
              busy={stopping}
              disabled={!progress}
              aria-label={`Cancel the deployment of ${modelId}`}
              onClick={() => progress && void cancel(progress)}
            >
              Cancel
            </Button>
          )}
        </span>
      </div>
      <Meter
        share={status === "ready" ? 1 : share}
        label={`Progress of ${modelId}`}
        tone={tone === "plain" ? undefined : tone}
        tall
        busy={status === "queued" || status === "loading" || sizeUnknown}
      />
      {progress?.message && (
        <p className={status === "failed" ? "bad small reason-lines" : "muted small"}>{progress.message}</p>
      )}
    </li>
  );
}
