import { type KeyboardEvent, useId, useRef, useState } from "react";

const SHOWN_MAX = 50;

interface ComboboxProps {
  label: string;
  value: string;
  onChange(value: string): void;
  choices: readonly string[];
  /** Instead of choices, while there are none. */
  placeholder?: string;
  className?: string;
  id?: string;
}

/** Chooses one of many by typing a part of it. */
export function Combobox({ label, value, onChange, choices, placeholder, className, id }: ComboboxProps) {
  const listId = useId();
  const input = useRef<HTMLInputElement>(null);
  /** What is typed; null: closed. */
  const [words, setWords] = useState<string | null>(null);
  const [active, setActive] = useState(0);
  const isOpen = words !== null;
  const wanted = words?.trim().toLowerCase() ?? "";
  const matching = isOpen ? choices.filter((choice) => choice.toLowerCase().includes(wanted)) : [];
  const found = matching.slice(0, SHOWN_MAX);
  const open = () => {
    setWords("");
    setActive(Math.max(0, choices.slice(0, SHOWN_MAX).indexOf(value)));
  };
  const choose = (choice: string | undefined) => {
    setWords(null);
    if (choice !== undefined && choice !== value) onChange(choice);
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      if (isOpen) setActive((active + step + found.length) % Math.max(1, found.length));
      else open();
    }
    if (!isOpen) return;
    if (event.key === "Enter" || event.key === "Escape") {
      // Neither sends the form around it nor closes the dialog.
      event.preventDefault();
      event.stopPropagation();
      choose(event.key === "Enter" ? found[active] : undefined);
    }
  };
  return (
    <span className={["combobox", className].filter(Boolean).join(" ")}>
      <input
        ref={input}
        id={id}
        className="select small mono"
        role="combobox"
        aria-label={label}
        aria-expanded={isOpen}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={found[active] === undefined ? undefined : `${listId}-${active}`}
        autoComplete="off"
        spellCheck={false}
        placeholder={isOpen ? value || placeholder : placeholder}
        value={words ?? value}
        onClick={() => !isOpen && open()}
        onBlur={() => setWords(null)}
        onKeyDown={press}
        onChange={(event) => {
          setWords(event.target.value);
          setActive(0);
        }}
      />
      {isOpen && (
        <div role="listbox" id={listId} aria-label={label} className="combobox-list">
          {found.map((choice, i) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the input above handles the keys
            // biome-ignore lint/a11y/useFocusableInteractive: the input keeps the focus, as comboboxes do
            <div
              key={choice}
              id={`${listId}-${i}`}
              role="option"
              aria-selected={i === active}
              ref={i === active ? (element) => element?.scrollIntoView({ block: "nearest" }) : undefined}
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => choose(choice)}
            >
              {choice}
            </div>
          ))}
          {matching.length > SHOWN_MAX && (
            <p className="muted">{matching.length - SHOWN_MAX} more: type a part of the name.</p>
          )}
          {found.length === 0 && <p className="muted">Nothing matches.</p>}
        </div>
      )}
    </span>
  );
}
