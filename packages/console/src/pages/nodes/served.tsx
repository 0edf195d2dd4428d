import type { Result } from "@model-gateway/client";
import { api } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast, toastError } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { When } from "../../ui/states.tsx";

type Served = Result<"agents.served">[number];

const EVERY_MS = 10_000;

const inWords = ({ mode, idle_minutes, replicas_max }: Served): string => {
  const nodes = replicas_max > 1 ? `, on up to ${count(replicas_max)} nodes` : "";
  return mode === "always"
    ? `always${nodes}`
    : `on demand, until idle for ${count(idle_minutes)} min${nodes}`;
};

/** Models that run wherever there is room, always or on demand; a node shows only those that it has now. */
export function ServedModels() {
  const { data = [] } = useQuery("served", () => api("agents.served"), { everyMs: EVERY_MS });
  const served = data.filter(({ mode }) => mode !== "off");
  const end = async (model_id: string) => {
    try {
      await api("agents.serve", { model_id, mode: "off" });
      toast(`${model_id} is served no more`);
      invalidate("served");
      invalidate("agents");
    } catch (error) {
      toastError(error);
    }
  };
  if (served.length === 0) return null;
  return (
    <section className="stack tight" aria-labelledby="served">
      <h2 id="served">Wherever there is room</h2>
      <ul className="lines">
        {served.map((model) => (
          <li key={model.model_id}>
            <span className="grow">
              <code>{model.model_id}</code>{" "}
              <span className="muted small">
                {inWords(model)}; used <When time={model.used_at} />
              </span>
            </span>
            <Button
              small
              icon="stop"
              aria-label={`Serve ${model.model_id} no more`}
              onClick={() => void end(model.model_id)}
            >
              Off
            </Button>
          </li>
        ))}
      </ul>
    </section>
  );
}
