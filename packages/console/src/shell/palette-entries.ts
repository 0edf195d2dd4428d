import { useMemo } from "react";
import { useActivity } from "../lib/activity.ts";
import { api } from "../lib/api.ts";
import { signOut } from "../lib/client.ts";
import { useDocs } from "../lib/docs.ts";
import { useGroups } from "../lib/groups.ts";
import { useCallableModels } from "../lib/models.ts";
import { useQuery } from "../lib/query.ts";
import { useStore } from "../lib/store.ts";
import { isDark, setTheme, theme } from "../lib/theme.ts";
import type { PageEntry } from "../pages/index.ts";
import type { IconName } from "../ui/icons.tsx";

interface Named {
  id: string;
  label: string;
  kind: string;
  icon: IconName;
}
/** Either a place in the console or something that is done at once. */
export type PaletteEntry = Named & ({ to: string } | { to?: undefined; run(): void });

const creating = (label: string, to: string): PaletteEntry => ({
  id: `new ${label}`,
  label,
  kind: "action",
  icon: "plus",
  to,
});

function useActions(isAdmin: boolean): PaletteEntry[] {
  const dark = isDark(useStore(theme));
  return useMemo(
    () => [
      creating("Create key", "/keys?new=1"),
      creating("Create group", "/groups?new=1"),
      creating("New conversation", "/conversations/new"),
      ...(isAdmin
        ? [creating("Register backend", "/models?new=1"), creating("Register node", "/nodes?new=1")]
        : []),
      {
        id: "theme",
        label: dark ? "Use the light theme" : "Use the dark theme",
        kind: "action",
        icon: dark ? "sun" : "moon",
        run: () => setTheme(dark ? "light" : "dark"),
      },
      {
        id: "system theme",
        label: "Use the system's theme",
        kind: "action",
        icon: "settings",
        run: () => setTheme("system"),
      },
      { id: "sign out", label: "Sign out", kind: "action", icon: "leave", run: () => void signOut() },
    ],
    [isAdmin, dark],
  );
}

/** Everything that can be gone to or done from anywhere. */
export function usePaletteEntries(pages: readonly PageEntry[], isAdmin: boolean): PaletteEntry[] {
  const actions = useActions(isAdmin);
  const keys = useQuery("keys", () => api("keys.list")).data;
  const groups = useGroups().data;
  const conversations = useQuery("conversations", () => api("conversations.list")).data;
  const nodes = useQuery(isAdmin ? "agents" : null, () => api("agents.list")).data;
  const backends = useActivity().data?.backends;
  const models = useCallableModels().data;
  const docs = useDocs().data;
  return useMemo(() => {
    const found = <T>(
      list: readonly T[] | undefined,
      named: { kind: string; icon: IconName },
      place: (item: T) => { label: string; to: string },
    ): PaletteEntry[] =>
      (list ?? []).map(place).map(({ label, to }) => ({ id: `${named.kind} ${to}`, label, to, ...named }));
    return [
      ...found(pages, { kind: "page", icon: "overview" }, ({ title, patterns }) => ({
        label: title,
        to: patterns[0]!,
      })).map((entry, i) => ({ ...entry, icon: pages[i]!.icon })),
      ...actions,
      ...found(keys, { kind: "key", icon: "keys" }, ({ id, name }) => ({
        label: name,
        to: `/keys?open=${id}`,
      })),
      ...found(groups, { kind: "group", icon: "groups" }, ({ id, name }) => ({
        label: name,
        to: `/groups/${id}`,
      })),
      ...found(models, { kind: "model", icon: "playground" }, (id) => ({
        label: id,
        to: `/playground?model=${encodeURIComponent(id)}`,
      })),
      ...found(backends, { kind: "backend", icon: "backends" }, ({ name }) => ({
        label: name,
        to: `/models?open=${encodeURIComponent(name)}`,
      })),
      ...found(nodes, { kind: "node", icon: "nodes" }, ({ agent_id, name }) => ({
        label: name,
        to: `/nodes?open=${agent_id}`,
      })),
      ...found(conversations, { kind: "conversation", icon: "conversations" }, ({ id, title }) => ({
        label: title,
        to: `/conversations/${id}`,
      })),
      ...found(docs, { kind: "documentation", icon: "docs" }, ({ path, title }) => ({
        label: title,
        to: `/docs/${path}`,
      })),
    ];
  }, [pages, actions, keys, groups, models, backends, nodes, conversations, docs]);
}
