import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { navigate } from "../lib/router.ts";
import type { PageEntry } from "../pages/index.ts";
import { Icon } from "../ui/icons.tsx";
import { type PaletteEntry, usePaletteEntries } from "./palette-entries.ts";

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
  const entries = usePaletteEntries(pages, isAdmin);
  useEffect(() => {
    if (!dialog.current?.open) dialog.current?.showModal();
  }, []);
  const found = entries
    .map((entry) => ({ entry, points: score(query.trim().toLowerCase(), entry.label) }))
    .filter((match) => match.points !== null)
    .sort((a, b) => a.points! - b.points!)
    .slice(0, SHOWN_MAX)
    .map(({ entry }) => entry);
  const go = (entry: PaletteEntry | undefined) => {
    if (!entry) return;
    onClose();
    if (entry.to === undefined) entry.run();
    else navigate(entry.to);
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
          aria-label="Find a page, key, model, document …, or type what to do"
          placeholder="Find a page, key, model, document …, or type what to do"
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
        {found.length === 0 && <p className="muted nothing">Nothing matches.</p>}
      </div>
    </dialog>
  );
}
