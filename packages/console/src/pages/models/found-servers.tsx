import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { plural } from "../../lib/format.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast, toastError } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { QueryFailure, Status } from "../../ui/states.tsx";

type Server = Result<"backends.detect">["servers"][number];

const MODELS_SHOWN = 3;
const CHANGED = ["local servers", "backends", "models", "health", "activity"] as const;

function modelsInWords({ models, models_total }: Server): string {
  if (models_total === 0) return "no model loaded yet";
  const shown = models.slice(0, MODELS_SHOWN).join(", ");
  return models_total > MODELS_SHOWN ? `${shown} and ${models_total - MODELS_SHOWN} more` : shown;
}

/** Model servers that answer at their usual ports on the service's own machine, each one click from use. */
export function FoundServers({ onRegistered }: { onRegistered?(): void }) {
  const query = useQuery("local servers", () => api("backends.detect"));
  const found = query.data?.servers.filter((server) => server.found) ?? [];
  const tried = query.data?.servers ?? [];
  return (
    <div className="stack tight found" aria-busy={query.loading}>
      <div className="row between wrap">
        <span className="muted small">
          {query.loading
            ? "Looking for model servers on the gateway's machine"
            : found.length > 0
              ? `${plural(found.length, "model server")} found on the gateway's machine`
              : "No model server answers on the gateway's machine"}
        </span>
        <Button small look="quiet" icon="refresh" busy={query.loading} onClick={() => void query.reload()}>
          Look again
        </Button>
      </div>
      <QueryFailure query={query} />
      {found.length > 0 ? (
        <ul className="lines">
          {found.map((server) => (
            <FoundServer key={server.id} server={server} onRegistered={onRegistered} />
          ))}
        </ul>
      ) : (
        tried.length > 0 && (
          <p className="muted small">
            Tried {tried.map(({ label, url }) => `${label} (${new URL(url).port})`).join(", ")}. Inside a
            container this machine is the container itself; give the address by hand then.
          </p>
        )
      )}
    </div>
  );
}

function FoundServer({ server, onRegistered }: { server: Server; onRegistered?(): void }) {
  const [busy, setBusy] = useState(false);
  const register = async () => {
    setBusy(true);
    try {
      const { name } = await api("backends.adopt", { server: server.id });
      toast(`${name} is registered; its models can be called as soon as it has been probed`);
      for (const key of CHANGED) invalidate(key);
      onRegistered?.();
    } catch (error) {
      toastError(error);
    }
    setBusy(false);
  };
  return (
    <li>
      <span className="stack none">
        <span>
          <strong>{server.label}</strong> <span className="muted mono small">{server.url}</span>
        </span>
        <span className="muted small ellipsis">{modelsInWords(server)}</span>
      </span>
      {server.registered_as === null ? (
        <Button small look="primary" busy={busy} onClick={() => void register()}>
          Register
        </Button>
      ) : (
        <Status tone="good">Registered as {server.registered_as}</Status>
      )}
    </li>
  );
}
