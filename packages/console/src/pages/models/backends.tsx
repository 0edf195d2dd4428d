import { useState } from "react";
import { useActivity } from "../../lib/activity.ts";
import { api } from "../../lib/api.ts";
import { type Backend, backendsChanged, statusOf, useBackends } from "../../lib/backends.ts";
import { plural } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { Link, useSearch } from "../../lib/router.ts";
import { toast, toastError } from "../../lib/toast.ts";
import { BackendStatus } from "../../ui/backend-status.tsx";
import { Button } from "../../ui/controls.tsx";
import { Confirm, Dialog } from "../../ui/dialogs.tsx";
import { LostCache } from "../../ui/lost-cache.tsx";
import { ProbeStrip } from "../../ui/probe-strip.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Note, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Seen, Trials, useContact } from "./contact.tsx";
import { FoundServers } from "./found-servers.tsx";
import { BackendForm } from "./register.tsx";
import { type ModelPrice, SetPrice } from "./set-price.tsx";

function Unpriced({
  models,
  isOwn,
  onPrice,
}: {
  models: readonly string[];
  isOwn: boolean;
  onPrice(model: string): void;
}) {
  if (models.length === 0) return <span className="muted">{isOwn ? "not billed" : "priced"}</span>;
  return (
    <span className="row">
      <Status tone="warn">{models.length} unpriced</Status>
      <Button
        small
        look="quiet"
        aria-label={`Set price of ${models[0]}`}
        onClick={(event) => {
          event.stopPropagation();
          onPrice(models[0]!);
        }}
      >
        Set price
      </Button>
    </span>
  );
}

const columnsFor = (
  unpricedOf: (backend: Backend) => readonly string[],
  onPrice: (model: string) => void,
): Column<Backend>[] => [
  {
    id: "name",
    label: "Name",
    sort: ({ name }) => name.toLowerCase(),
    cell: ({ name, agents }) => (
      <span className="stack none">
        <strong>{name}</strong>
        {agents.length > 0 && (
          <span className="muted small">
            {agents.map((agent) => `${agent.name} ${agent.ok ? "✓" : "✗"}`).join(", ")}
          </span>
        )}
      </span>
    ),
  },
  {
    id: "type",
    label: "Kind",
    wide: true,
    sort: ({ type }) => type,
    cell: ({ type }) => <span className="tag">{type}</span>,
  },
  { id: "url", label: "Address", wide: true, cell: ({ url }) => <span className="mono">{url}</span> },
  {
    id: "state",
    label: "Status",
    sort: (backend) => statusOf(backend).text,
    cell: (backend) => (
      <span className="stack tight">
        <BackendStatus backend={backend} short />
        {backend.lost_cache_share !== null && <LostCache share={backend.lost_cache_share} />}
      </span>
    ),
  },
  { id: "models", label: "Models", numeric: true, wide: true, cell: ({ models }) => models },
  {
    id: "prices",
    label: "Prices",
    wide: true,
    cell: (backend) => (
      <Unpriced models={unpricedOf(backend)} isOwn={backend.own_hardware} onPrice={onPrice} />
    ),
  },
];

export function Backends() {
  const query = useBackends();
  // Asked again when other models can be called, not only when the page is opened.
  const callable = query.data && `prices ${query.data.models.join(" ")}`;
  const prices = useQuery(callable ?? null, () => api("billing.prices.list")).data;
  const [search, setSearch] = useSearch();
  const [pricing, setPricing] = useState<ModelPrice | null>(null);
  const setPriceOf = (id: string) => setPricing(prices?.find(({ model }) => model === id) ?? null);
  const unpriced = new Set(prices?.flatMap((price) => (price.unpriced ? [price.model] : [])));
  // What runs on own hardware needs no price, whoever else sells it.
  const unpricedOf = ({ model_ids, own_hardware }: Backend) =>
    own_hardware ? [] : model_ids.filter((id) => unpriced.has(id));
  const columns = columnsFor(unpricedOf, setPriceOf);
  return (
    <Loaded query={query} outline={<TableSkeleton columns={columns} />}>
      {({ backends }) => {
        const open = backends.find(({ name }) => name === search.get("open"));
        if (backends.length === 0)
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
              rows={backends}
              rowKey={({ label }) => label}
              dim={({ enabled }) => !enabled}
              onOpen={({ name }) => setSearch({ open: name })}
            />
            {pricing && <SetPrice price={pricing} onClose={() => setPricing(null)} />}
            {open && (
              <BackendSheet
                backend={open}
                unpriced={unpricedOf(open)}
                onPrice={setPriceOf}
                onClose={() => setSearch({ open: null })}
              />
            )}
          </>
        );
      }}
    </Loaded>
  );
}

/** A sheet with a thousand of them would take half a second to open; the list of models has them all. */
const MODELS_LISTED = 50;

function BackendSheet({
  backend,
  unpriced,
  onPrice,
  onClose,
}: {
  backend: Backend;
  unpriced: readonly string[];
  onPrice(model: string): void;
  onClose(): void;
}) {
  const [asking, setAsking] = useState<"edit" | "remove" | null>(null);
  const [busy, setBusy] = useState(false);
  const { name, model_ids, enabled, editable } = backend;
  const contact = useContact();
  const probes = useActivity().data?.backends.find((one) => one.name === name)?.probes;
  const run = async (work: () => Promise<unknown>, done: string) => {
    setBusy(true);
    try {
      await work();
      backendsChanged();
      toast(done);
    } catch (error) {
      toastError(error);
    }
    setBusy(false);
  };
  const close = () => setAsking(null);
  return (
    <Dialog title={name} kind="sheet" onClose={onClose}>
      <div className="stack">
        <BackendStatus backend={backend} />
        {backend.lost_cache_share !== null && <LostCache share={backend.lost_cache_share} />}
        <div className="row wrap">
          <Button
            icon="refresh"
            small
            busy={busy}
            onClick={() => void run(() => api("backends.probe", { name }), `${name} was probed`)}
          >
            Probe now
          </Button>
          {editable && enabled && (
            <Button
              icon="play"
              small
              busy={busy}
              onClick={() => void run(() => contact.run({ name }), `${name} was tested`)}
            >
              Test
            </Button>
          )}
          {editable && (
            <>
              <Button icon="edit" small onClick={() => setAsking("edit")}>
                Edit
              </Button>
              <Button
                small
                busy={busy}
                onClick={() =>
                  void run(
                    () => api("backends.update", { name, enabled: !enabled }),
                    enabled ? `${name} gets no requests now` : `${name} is enabled`,
                  )
                }
              >
                {enabled ? "Disable" : "Enable"}
              </Button>
            </>
          )}
          <Button look="danger" icon="trash" small onClick={() => setAsking("remove")}>
            Remove
          </Button>
        </div>
        {contact.trials.length > 0 && <Trials trials={contact.trials} />}
        {backend.seen && contact.trials.length === 0 && <Seen seen={backend.seen} agents={backend.agents} />}
        <dl className="facts">
          <dt>Kind</dt>
          <dd>{backend.type}</dd>
          <dt>Address</dt>
          <dd className="mono">{backend.url}</dd>
          <dt>API key</dt>
          <dd>
            {backend.has_key ? "set" : <span className="muted">none</span>}
            {backend.refused_keys.map(({ ends_with, until }) => (
              <Status key={ends_with} tone="warn">
                …{ends_with} was refused, tried again <When time={until} />
              </Status>
            ))}
          </dd>
          {!backend.own_hardware && (
            <>
              <dt>Cost</dt>
              <dd className="row wrap">
                {backend.believe_cost ? "as the server reports it" : "by the models' prices"}
                {editable && (
                  <Button
                    small
                    look="quiet"
                    busy={busy}
                    onClick={() =>
                      void run(
                        () => api("backends.update", { name, believe_cost: !backend.believe_cost }),
                        backend.believe_cost
                          ? "Models are charged at their prices"
                          : `What ${name} reports as its cost is charged`,
                      )
                    }
                  >
                    {backend.believe_cost ? "Charge by price" : "Charge what it reports"}
                  </Button>
                )}
              </dd>
            </>
          )}
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
            {model_ids.length === 0 ? (
              <span className="muted">none are known</span>
            ) : (
              <ul>
                {model_ids.slice(0, MODELS_LISTED).map((id) => (
                  <li key={id}>
                    <span className="row wrap">
                      <code>{id}</code>
                      {unpriced.includes(id) && (
                        <>
                          <Status tone="warn">unpriced</Status>
                          <Button
                            small
                            look="quiet"
                            aria-label={`Set price of ${id}`}
                            onClick={() => onPrice(id)}
                          >
                            Set price
                          </Button>
                        </>
                      )}
                    </span>
                  </li>
                ))}
                {model_ids.length > MODELS_LISTED && (
                  <li>
                    <Link href="/models/list">{plural(model_ids.length - MODELS_LISTED, "more model")}</Link>
                  </li>
                )}
              </ul>
            )}
          </dd>
        </dl>
        {backend.implausible_usage && (
          <Note tone="warn">
            Reported usage that its model cannot have had, {plural(backend.implausible_usage.count, "time")}.
            The newest case, <When time={backend.implausible_usage.at} />: {backend.implausible_usage.problem}{" "}
            (request {backend.implausible_usage.request_id}).
          </Note>
        )}
      </div>
      {asking === "edit" && <BackendForm backend={backend} onClose={close} />}
      {asking === "remove" && (
        <Confirm
          title={`Remove ${name}?`}
          consequence={`Requests are no longer sent to it${model_ids.length ? `, and ${plural(model_ids.length, "model")} may no longer be callable` : ""}. It can be registered again.`}
          confirm="Remove"
          onClose={close}
          onConfirm={async () => {
            await api("backends.remove", { name });
            backendsChanged();
            toast(`${name} is removed`);
            onClose();
          }}
        />
      )}
    </Dialog>
  );
}
