import { type KeyboardEvent, useId, useRef, useState } from "react";

const SHOWN_MAX = 50;

export interface Choice<V extends string = string> {
  value: V;
  label: string;
}

/** Choices that are named as they are, such as models. */
export const asChoices = <V extends string>(values: readonly V[]): Choice<V>[] =>
  values.map((value) => ({ value, label: value }));

interface ComboboxProps<V extends string> {
  label: string;
  value: V;
  onChange(value: NoInfer<V>): void;
  choices: readonly Choice<NoInfer<V>>[];
  /** Instead of choices, while there are none. */
  placeholder?: string;
  className?: string;
  id?: string;
  describedBy?: string;
  disabled?: boolean;
  /** As high as what stands beside it in a row of filters. */
  small?: boolean;
}

/** Chooses one of many by typing a part of it. */
export function Combobox<V extends string>({
  label,
  value,
  onChange,
  choices,
  placeholder,
  className,
  id,
  describedBy,
  disabled,
  small = true,
}: ComboboxProps<V>) {
  const listId = useId();
  const input = useRef<HTMLInputElement>(null);
  /** What is typed; null: closed. */
  const [words, setWords] = useState<string | null>(null);
  const [active, setActive] = useState(0);
  const isOpen = words !== null;
  const wanted = words?.trim().toLowerCase() ?? "";
  const matching = isOpen ? choices.filter((choice) => choice.label.toLowerCase().includes(wanted)) : [];
  const found = matching.slice(0, SHOWN_MAX);
  const chosen = choices.find((choice) => choice.value === value)?.label ?? value;
  const open = () => {
    setWords("");
    setActive(
      Math.max(
        0,
        choices.slice(0, SHOWN_MAX).findIndex((choice) => choice.value === value),
      ),
    );
  };
  const choose = (choice: Choice<V> | undefined) => {
    setWords(null);
    if (choice && choice.value !== value) onChange(choice.value);
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
        className={small ? "select small" : "select"}
        role="combobox"
        aria-label={label}
        aria-describedby={describedBy}
        disabled={disabled}
        aria-expanded={isOpen}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={found[active] === undefined ? undefined : `${listId}-${active}`}
        autoComplete="off"
        spellCheck={false}
        placeholder={isOpen ? chosen || placeholder : placeholder}
        value={words ?? chosen}
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
              key={choice.value}
              id={`${listId}-${i}`}
              role="option"
              aria-selected={i === active}
              ref={i === active ? (element) => element?.scrollIntoView({ block: "nearest" }) : undefined}
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => choose(choice)}
            >
              {choice.label}
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
