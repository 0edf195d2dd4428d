import catalogue from "@model-gateway/client/node-models.json" with { type: "json" };
import { useEffect, useState } from "react";
import { api } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { AgentNode, NodeFit } from "../../lib/records.ts";
import { SelectField, TextField } from "../../ui/controls.tsx";
import { FormDialog } from "../../ui/dialogs.tsx";
import { gigabytes } from "../../ui/gpus.tsx";
import { Loaded, Status } from "../../ui/states.tsx";
import { watchDeployment } from "./deployments.tsx";

/** Nodes ask the hub for what a model takes, so they are asked when typing pauses. */
const TYPING_MS = 400;
const OTHER = "";

const knownOf = (modelId: string) =>
  catalogue.models.find(({ variants }) => variants.some(({ model_id }) => model_id === modelId));

interface Serving {
  context_tokens?: number;
  slots?: number;
  gpu_count?: number;
}

function useSettled<T>(value: T): T {
  const text = JSON.stringify(value);
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return JSON.parse(settled) as T;
}

export function Deploy({ nodes, onClose }: { nodes: readonly AgentNode[]; onClose(): void }) {
  const [model, setModel] = useState("");
  const [nodeId, setNodeId] = useState("");
  const [mode, setMode] = useState<"deploy" | "always" | "on_demand" | "off">("deploy");
  const [context, setContext] = useState("");
  const [slots, setSlots] = useState("");
  const [gpus, setGpus] = useState("");
  const modelId = model.trim();
  const known = knownOf(modelId);
  const serving: Serving = {
    ...(context && { context_tokens: Number(context) }),
    ...(slots && { slots: Number(slots) }),
    ...(gpus && { gpu_count: Number(gpus) }),
  };
  const deploy = async () => {
    if (mode !== "deploy") {
      await api("agents.serve", { model_id: modelId, mode, ...serving });
      invalidate("agents");
      invalidate("served");
      return;
    }
    const { stream_id } = await api("agents.deploy", {
      model_id: modelId,
      ...(nodeId && { agent_id: nodeId }),
      ...serving,
    });
    watchDeployment({ streamId: stream_id, modelId });
  };
  return (
    <FormDialog title="Deploy a model" submit="Deploy" onSubmit={deploy} onClose={onClose} kind="modal wide">
      <div className="form-grid">
        <SelectField
          label="Known model"
          value={known?.name ?? OTHER}
          onChange={(name) =>
            setModel(catalogue.models.find((each) => each.name === name)?.variants[0]?.model_id ?? "")
          }
          choices={[
            { value: OTHER, label: "another one, by its name" },
            ...catalogue.models.map(({ name }) => ({ value: name, label: name })),
          ]}
        />
        <SelectField
          label="Quantisation"
          value={modelId}
          onChange={setModel}
          disabled={!known}
          choices={
            known?.variants.map(({ model_id, quantisation, size_gb }) => ({
              value: model_id,
              label: `${quantisation}, ${size_gb.toFixed(1)} GB`,
            })) ?? [{ value: modelId, label: "as its name says" }]
          }
        />
      </div>
      <TextField
        label="Model"
        field="model_id"
        value={model}
        onChange={setModel}
        required
        placeholder="Qwen/Qwen3-8B"
        hint="A name from the node's configuration, or owner/name of a model on the hub"
      />
      <div className="form-grid">
        <TextField
          label="Context, tokens"
          field="context_tokens"
          type="number"
          min={1}
          value={context}
          onChange={setContext}
          placeholder={known ? String(known.context_tokens) : "the model's"}
        />
        <TextField
          label="Slots"
          field="slots"
          type="number"
          min={1}
          value={slots}
          onChange={setSlots}
          placeholder="the engine's"
        />
        <TextField
          label="GPUs"
          field="gpu_count"
          type="number"
          min={1}
          value={gpus}
          onChange={setGpus}
          placeholder="all"
        />
      </div>
      <SelectField
        label="Runs"
        value={mode}
        onChange={setMode}
        choices={[
          { value: "deploy", label: "on one node, until it is stopped" },
          { value: "always", label: "always, wherever there is room" },
          { value: "on_demand", label: "on demand: from its first request until it is idle" },
          { value: "off", label: "no more, wherever it runs" },
        ]}
      />
      {mode === "deploy" && (
        <SelectField
          label="Node"
          value={nodeId}
          onChange={setNodeId}
          choices={[
            { value: "", label: "the one with the most room" },
            ...nodes
              .filter(({ online }) => online)
              .map(({ agent_id, name }) => ({ value: agent_id, label: name })),
          ]}
        />
      )}
      {mode !== "off" && <Fits modelId={modelId} serving={serving} />}
    </FormDialog>
  );
}

/** What the model would take of each node, and whether there is room. */
function Fits({ modelId, serving }: { modelId: string; serving: Serving }) {
  const asked = useSettled({ model_id: modelId, ...serving });
  const fits = useQuery(asked.model_id ? `fits ${JSON.stringify(asked)}` : null, () =>
    api("agents.fits", asked),
  );
  if (!asked.model_id) return null;
  return (
    <section aria-label="Where it fits" className="stack tight">
      <strong className="small">Where it fits</strong>
      <Loaded query={fits} outline={<span className="muted small">Asking the nodes…</span>}>
        {(list) => (
          <ul className="lines">
            {list.length === 0 && <li className="muted small">No node is online</li>}
            {list.map((fit) => (
              <FitRow key={fit.agent_id} fit={fit} />
            ))}
          </ul>
        )}
      </Loaded>
    </section>
  );
}

function FitRow({ fit: { name, fits, estimate, room_mb, why } }: { fit: NodeFit }) {
  const tone = estimate === null || room_mb === null ? "plain" : fits ? "good" : "bad";
  return (
    <li>
      <span className="stack tight">
        <strong>{name}</strong>
        <span className="muted small">
          {estimate ? estimateInWords(estimate) : (why ?? "It cannot tell")}
        </span>
      </span>
      <Status tone={tone}>
        {estimate
          ? `${fits ? "fits" : "does not fit"}: ${gigabytes(estimate.total_mb)} of ${room_mb === null ? "?" : gigabytes(room_mb)} GB`
          : "unknown"}
      </Status>
    </li>
  );
}

function estimateInWords({
  weights_mb,
  cache_mb,
  overhead_mb,
  context_tokens,
  slots,
}: NonNullable<NodeFit["estimate"]>): string {
  const tokens = context_tokens === null ? "" : ` for ${slots} × ${count(context_tokens)} tokens`;
  const cache = cache_mb === null ? "cache unknown" : `cache ${gigabytes(cache_mb)} GB${tokens}`;
  return `weights ${gigabytes(weights_mb)} GB, ${cache}, overhead ${gigabytes(overhead_mb)} GB`;
}
