import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from "react";
import { api } from "../lib/api.ts";
import { useCallableModels } from "../lib/models.ts";
import { useQuery } from "../lib/query.ts";
import { navigate } from "../lib/router.ts";
import type { PageEntry } from "../pages/index.ts";
import { Icon, type IconName } from "../ui/icons.tsx";

interface Entry {
  id: string;
  label: string;
  kind: string;
  icon: IconName;
  to: string;
}

const SHOWN_MAX = 50;

/** Letters of the query in order, not necessarily side by side; earlier and closer is better. */
function score(query: string, text: string): number | null {
  const lower = text.toLowerCase();
  const direct = lower.indexOf(query);
  if (direct >= 0) return direct;
  let at = -1;
  for (const letter of query) {
    at = lower.indexOf(letter, at + 1);
    if (at < 0) return null;
  }
  return 100 + at;
}

function useEntries(pages: readonly PageEntry[], isAdmin: boolean): Entry[] {
  const keys = useQuery("keys", () => api("keys.list")).data;
  const groups = useQuery("groups", () => api("group.list")).data;
  const models = useCallableModels().data;
  return useMemo(
    () => [
      ...pages.map(({ title, icon, patterns }) => ({
        id: `page ${title}`,
        label: title,
        kind: "page",
        icon,
        to: patterns[0]!,
      })),
      { id: "new key", label: "Create key", kind: "action", icon: "plus", to: "/keys?new=1" },
      { id: "new group", label: "Create group", kind: "action", icon: "plus", to: "/groups?new=1" },
      ...(isAdmin
        ? [
            {
              id: "new backend",
              label: "Register backend",
              kind: "action",
              icon: "plus",
              to: "/models?new=1",
            } as const,
            {
              id: "new node",
              label: "Register node",
              kind: "action",
              icon: "plus",
              to: "/nodes?new=1",
            } as const,
          ]
        : []),
      ...(keys ?? []).map(
        ({ id, name }) => ({ id, label: name, kind: "key", icon: "keys", to: `/keys?open=${id}` }) as const,
      ),
      ...(groups ?? []).map(
        ({ id, name }) => ({ id, label: name, kind: "group", icon: "groups", to: `/groups/${id}` }) as const,
      ),
      ...(models ?? []).map(
        (id) =>
          ({
            id: `model ${id}`,
            label: id,
            kind: "model",
            icon: "playground",
            to: `/playground?model=${encodeURIComponent(id)}`,
          }) as const,
      ),
    ],
    [pages, isAdmin, keys, groups, models],
  );
}

export function Palette({
  entries: pages,
  isAdmin,
  onClose,
}: {
  entries: readonly PageEntry[];
  isAdmin: boolean;
  onClose(): void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState("");
  const [chosen, setChosen] = useState(0);
  const entries = useEntries(pages, isAdmin);
  useEffect(() => {
    if (!dialog.current?.open) dialog.current?.showModal();
  }, []);
  const found = entries
    .map((entry) => ({ entry, points: score(query.trim().toLowerCase(), entry.label) }))
    .filter((match) => match.points !== null)
    .sort((a, b) => a.points! - b.points!)
    .slice(0, SHOWN_MAX)
    .map(({ entry }) => entry);
  const go = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    navigate(entry.to);
  };
  const move = (event: KeyboardEvent) => {
    if (event.key === "Enter") go(found[chosen]);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    setChosen((now) => (now + step + found.length) % Math.max(1, found.length));
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, the click is only the backdrop
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Find"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <div className="query">
        <Icon name="search" />
        <input
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant={found[chosen] ? `palette-${chosen}` : undefined}
          aria-label="Find a page, key, model or group"
          placeholder="Find a page, key, model or group"
          value={query}
          onKeyDown={move}
          onChange={(event) => {
            setQuery(event.target.value);
            setChosen(0);
          }}
        />
        <kbd>esc</kbd>
      </div>
      <div role="listbox" id="palette-list" aria-label="Found" className="palette-list">
        {found.map((entry, i) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input above handles the keys
          // biome-ignore lint/a11y/useFocusableInteractive: the input keeps the focus, as comboboxes do
          <div
            key={entry.id}
            id={`palette-${i}`}
            role="option"
            aria-selected={i === chosen}
            ref={i === chosen ? (element) => element?.scrollIntoView({ block: "nearest" }) : undefined}
            onMouseMove={() => setChosen(i)}
            onClick={() => go(entry)}
          >
            <Icon name={entry.icon} />
            <span className="ellipsis">{entry.label}</span>
            <span className="kind">{entry.kind}</span>
          </div>
        ))}
        {found.length === 0 && <p className="muted nothing">Nothing is called that.</p>}
      </div>
    </dialog>
  );
}
