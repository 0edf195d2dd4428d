import type { BackendHealth } from "@model-gateway/client";
import { useState } from "react";
import { useActivity } from "../../lib/activity.ts";
import { circuitOf, HEALTH_TONE, indexOf, kindOf, useBackends } from "../../lib/backends.ts";
import { client } from "../../lib/client.ts";
import { plural } from "../../lib/format.ts";
import { useKnownModels } from "../../lib/models.ts";
import { invalidate } from "../../lib/query.ts";
import { useSearch } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { Confirm, Dialog } from "../../ui/dialogs.tsx";
import { ProbeStrip } from "../../ui/probe-strip.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Note, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { FoundServers } from "./found-servers.tsx";

export function CircuitStatus({ backend }: { backend: BackendHealth }) {
  const { state, retryAt } = circuitOf(backend);
  if (state === "closed") return <Status tone="good">Closed</Status>;
  if (state === "unknown") return <span className="muted">unknown</span>;
  return (
    <Status tone={state === "open" ? "bad" : "warn"}>
      <span>
        {state === "open" ? "Open" : "Half-open"}
        {retryAt && (
          <span className="muted">
            , tried again <When time={retryAt} />
          </span>
        )}
      </span>
    </Status>
  );
}

const nameOf = (backend: BackendHealth) => backend.name ?? backend.label;

const columns: Column<BackendHealth>[] = [
  {
    id: "name",
    label: "Name",
    sort: (backend) => nameOf(backend).toLowerCase(),
    cell: (backend) => <strong>{nameOf(backend)}</strong>,
  },
  {
    id: "kind",
    label: "Kind",
    wide: true,
    sort: kindOf,
    cell: (backend) => <span className="tag">{kindOf(backend)}</span>,
  },
  { id: "url", label: "Address", wide: true, cell: ({ url }) => <span className="mono">{url ?? ""}</span> },
  {
    id: "state",
    label: "Health",
    sort: ({ state }) => state,
    cell: ({ state }) => <Status tone={HEALTH_TONE[state] ?? "plain"}>{state}</Status>,
  },
  { id: "circuit", label: "Circuit", wide: true, cell: (backend) => <CircuitStatus backend={backend} /> },
  {
    id: "error",
    label: "Last error",
    wide: true,
    cell: (backend) => (
      <span className="muted clamp">
        {circuitOf(backend).cause ?? (backend.implausible_usage ? "Reports implausible usage" : "")}
      </span>
    ),
  },
];

export function Backends() {
  const query = useBackends();
  const [search, setSearch] = useSearch();
  return (
    <Loaded query={query} outline={<TableSkeleton columns={columns} />}>
      {({ backends: { health } }) => {
        const open = health.find((backend) => nameOf(backend) === search.get("open"));
        if (health.length === 0)
          return (
            <Empty
              icon="backends"
              title="No backend is registered"
              action={
                <>
                  <Button look="primary" icon="plus" onClick={() => setSearch({ new: "1" })}>
                    Register backend
                  </Button>
                  <FoundServers />
                </>
              }
            >
              A backend is a model server: Ollama, llama.cpp, vLLM, LM Studio, or any service that speaks chat
              completions.
            </Empty>
          );
        return (
          <>
            <Table
              label="Backends"
              columns={columns}
              rows={health}
              rowKey={({ label }) => label}
              onOpen={(backend) => setSearch({ open: nameOf(backend) })}
            />
            {open && <BackendSheet backend={open} onClose={() => setSearch({ open: null })} />}
          </>
        );
      }}
    </Loaded>
  );
}

function BackendSheet({ backend, onClose }: { backend: BackendHealth; onClose(): void }) {
  const [removing, setRemoving] = useState(false);
  const name = nameOf(backend);
  const models = useKnownModels().data?.filter(({ owned_by, price }) => price && owned_by === name);
  const { cause } = circuitOf(backend);
  const probes = useActivity().data?.backends.find((one) => one.name === name)?.probes;
  return (
    <Dialog title={name} kind="sheet" onClose={onClose}>
      <div className="stack">
        <dl className="facts">
          <dt>Kind</dt>
          <dd>{kindOf(backend)}</dd>
          <dt>Address</dt>
          <dd className="mono">{backend.url ?? "unknown"}</dd>
          <dt>Health</dt>
          <dd>
            <Status tone={HEALTH_TONE[backend.state] ?? "plain"}>{backend.state}</Status>
          </dd>
          <dt>Circuit</dt>
          <dd>
            <CircuitStatus backend={backend} />
          </dd>
          {probes && (
            <>
              <dt>Probes</dt>
              <dd>
                <ProbeStrip name={name} probes={probes} />
              </dd>
            </>
          )}
          <dt>Models</dt>
          <dd>
            {!models || models.length === 0 ? (
              <span className="muted">none can be called now</span>
            ) : (
              <ul>
                {models.map(({ id }) => (
                  <li key={id}>
                    <code>{id}</code>
                  </li>
                ))}
              </ul>
            )}
          </dd>
        </dl>
        {cause && <Note tone={backend.state === "Healthy" ? "warn" : "bad"}>{cause}</Note>}
        {backend.implausible_usage && (
          <Note tone="warn">
            Reported usage that its model cannot have had, {plural(backend.implausible_usage.count, "time")}.
            The newest case, <When time={backend.implausible_usage.at} />: {backend.implausible_usage.problem}{" "}
            (request {backend.implausible_usage.request_id}).
          </Note>
        )}
        <div>
          <Button look="danger" icon="trash" onClick={() => setRemoving(true)}>
            Remove backend
          </Button>
        </div>
      </div>
      {removing && (
        <Confirm
          title={`Remove ${name}?`}
          consequence={`Requests are no longer sent to it${models?.length ? `, and ${models.length} of its models may no longer be callable` : ""}. It can be registered again.`}
          confirm="Remove"
          onClose={() => setRemoving(false)}
          onConfirm={async () => {
            await client.admin.removeBackend(indexOf(backend));
            invalidate("backends");
            invalidate("models");
            toast(`${name} is removed`);
            onClose();
          }}
        />
      )}
    </Dialog>
  );
}
