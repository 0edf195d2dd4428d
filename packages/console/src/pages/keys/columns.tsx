import { useMemo } from "react";
import { useGroups } from "../../lib/groups.ts";
import { Status, When } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { isExpired, type Key, spentOf } from "./limits.tsx";
import { isCaptured, KeyState } from "./sheet.tsx";

/** Revoked keys stand at the end. */
export const activeFirst = (keys: readonly Key[]): Key[] =>
  keys.toSorted((a, b) => Number(b.active) - Number(a.active));

/** `owner` is who pays where no group does. */
export function useKeyColumns(owner: string): Column<Key>[] {
  const groups = useGroups().data;
  return useMemo(
    () => columnsFor((id) => groups?.find((group) => group.id === id)?.name ?? (id ? "a group" : owner)),
    [groups, owner],
  );
}

function columnsFor(groupName: (id: string | null) => string): Column<Key>[] {
  return [
    {
      id: "name",
      label: "Name",
      sort: ({ name }) => name.toLowerCase(),
      cell: (key) => (
        <span className="row wrap">
          <strong>{key.name}</strong>
          {isCaptured(key) && <Status tone="warn">prompts captured</Status>}
        </span>
      ),
    },
    {
      id: "prefix",
      label: "Prefix",
      wide: true,
      cell: ({ key_prefix }) => <code className="nowrap">service-{key_prefix}…</code>,
    },
    {
      id: "project",
      label: "Project",
      wide: true,
      sort: ({ project }) => project,
      cell: ({ project }) => <span className="tag">{project}</span>,
    },
    {
      id: "payer",
      label: "Paid by",
      wide: true,
      sort: ({ group_id }) => groupName(group_id),
      cell: ({ group_id }) => groupName(group_id),
    },
    {
      id: "spent",
      label: "This month",
      numeric: true,
      sort: ({ spent_month_usd }) => spent_month_usd,
      cell: ({ spent_month_usd, monthly_budget_usd }) => (
        <span className="nowrap">{spentOf(spent_month_usd, monthly_budget_usd)}</span>
      ),
    },
    {
      id: "used",
      label: "Last used",
      wide: true,
      sort: ({ last_used_at }) => last_used_at ?? "",
      cell: ({ last_used_at }) => <When time={last_used_at} />,
    },
    {
      id: "created",
      label: "Created",
      wide: true,
      sort: ({ created_at }) => created_at,
      cell: ({ created_at }) => <When time={created_at} />,
    },
    {
      id: "state",
      label: "State",
      sort: (key) => (key.active ? (isExpired(key) ? 1 : 2) : 0),
      cell: (key) => <KeyState value={key} />,
    },
  ];
}
