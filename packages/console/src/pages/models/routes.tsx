import { useState } from "react";
import { api } from "../../lib/api.ts";
import { useBackends } from "../../lib/backends.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import type { ModelRoute, RouteTarget } from "../../lib/records.ts";
import { useSearch } from "../../lib/router.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { TableSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded, Note, Status } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { RouteForm } from "./route-form.tsx";

const EVERY_MS = 5_000;

const columnsFor = (
  onEdit: (route: ModelRoute) => void,
  onRemove: (route: ModelRoute) => void,
): Column<ModelRoute>[] => [
  {
    id: "name",
    label: "Name",
    sort: ({ name }) => name,
    cell: ({ name }) => <strong className="mono">{name}</strong>,
  },
  {
    id: "targets",
    label: "Targets, in order",
    cell: ({ targets }) => (
      <ul className="targets">
        {[...targets]
          .sort((one, other) => one.order - other.order)
          .map((target) => (
            <li key={`${target.model} ${target.backend} ${target.order} ${target.weight}`}>
              <Target target={target} share={shareOf(target, targets)} />
            </li>
          ))}
      </ul>
    ),
  },
  {
    id: "begin",
    label: "Next target after",
    wide: true,
    cell: ({ begin_within_seconds: seconds }) =>
      seconds == null ? <span className="muted">an error</span> : `an error, or ${seconds} s`,
  },
  {
    id: "actions",
    label: "",
    numeric: true,
    cell: (route) => (
      <span className="row">
        <Button
          small
          look="quiet"
          icon="edit"
          aria-label={`Edit ${route.name}`}
          onClick={() => onEdit(route)}
        />
        <Button
          small
          look="quiet"
          icon="trash"
          aria-label={`Remove ${route.name}`}
          onClick={() => onRemove(route)}
        />
      </span>
    ),
  },
];

/** Share of the calls among the targets of the same order; null when it is alone. */
function shareOf({ order, weight }: RouteTarget, all: readonly RouteTarget[]): number | null {
  const same = all.filter((target) => target.order === order);
  return same.length === 1 ? null : weight / same.reduce((sum, target) => sum + target.weight, 0);
}

function Target({ target, share }: { target: RouteTarget; share: number | null }) {
  const { model, backend, order, backends } = target;
  const serving = backends.filter((each) => each.serving);
  const [tone, text] =
    backends.length === 0
      ? (["warn", backend ? `${backend} does not list it` : "no backend lists it"] as const)
      : serving.length === 0
        ? (["bad", `${backends.map(({ name }) => name).join(", ")}: not serving`] as const)
        : ([
            serving.length < backends.length ? "warn" : "good",
            `${serving.map(({ name }) => name).join(", ")}${serving.length < backends.length ? `; ${backends.length - serving.length} not serving` : ""}`,
          ] as const);
  return (
    <span className="row wrap">
      <span className="tag" title={`Order ${order}`}>
        {order}
      </span>
      <span className="mono">{model}</span>
      {share !== null && <span className="muted small">{Math.round(share * 100)}% of the calls</span>}
      <Status tone={tone}>{text}</Status>
    </span>
  );
}

export function Routes() {
  const routes = useQuery("routes", () => api("routes.list"), { everyMs: EVERY_MS });
  const { data: known } = useBackends();
  const [search, setSearch] = useSearch();
  const [removing, setRemoving] = useState<ModelRoute | null>(null);
  const edited = routes.data?.find(({ name }) => name === search.get("route"));
  const columns = columnsFor(({ name }) => setSearch({ route: name }), setRemoving);
  const add = (
    <Button icon="plus" onClick={() => setSearch({ "new-route": "1" })}>
      Add a model route
    </Button>
  );
  return (
    <div className="stack">
      <Loaded query={routes} outline={<TableSkeleton columns={columns} />}>
        {(list) => (
          <>
            {list.length === 0 ? (
              <Empty icon="backends" title="No model route is set" action={add}>
                A model route gives one name several targets. A call goes to the next one when a target is
                away, full, or slow to begin. Programs send the name as their model.
              </Empty>
            ) : (
              <>
                <div className="row between wrap">
                  <span className="muted">
                    Targets with a lower order go first; those of the same order share the calls by weight.
                  </span>
                  {add}
                </div>
                {list.some(({ targets }) =>
                  targets.every(({ backends }) => !backends.some((each) => each.serving)),
                ) && (
                  <Note tone="warn">
                    A route without a target that serves refuses every call. Its backends are on the first
                    tab.
                  </Note>
                )}
                <Table label="Model routes" columns={columns} rows={list} rowKey={({ name }) => name} />
              </>
            )}
            {(edited || search.has("new-route")) && (
              <RouteForm
                key={edited?.name}
                route={edited ?? null}
                taken={list.map(({ name }) => name)}
                models={known?.models ?? []}
                backends={known?.backends.map(({ name }) => name) ?? []}
                onClose={() => setSearch({ route: null, "new-route": null })}
              />
            )}
          </>
        )}
      </Loaded>
      {removing && (
        <Confirm
          title={`Remove ${removing.name}?`}
          consequence={`Calls to ${removing.name} are refused from now on, unless a backend lists a model of that name.`}
          confirm="Remove"
          onClose={() => setRemoving(null)}
          onConfirm={async () => {
            await api("routes.delete", { name: removing.name });
            invalidate("routes");
            invalidate("models");
            toast(`${removing.name} is removed`);
          }}
        />
      )}
    </div>
  );
}
