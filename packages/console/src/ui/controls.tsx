import {
  type ButtonHTMLAttributes,
  type ReactNode,
  useContext,
  useEffect,
  useId,
  useRef,
  useState,
} from "react";
import { FailureOfForm, problemOf } from "../lib/field-problems.ts";
import { Link } from "../lib/router.ts";
import { toast } from "../lib/toast.ts";
import { type Choice, Combobox } from "./combobox.tsx";
import { Icon, type IconName } from "./icons.tsx";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: "primary" | "quiet" | "danger" | "danger primary";
  small?: boolean;
  icon?: IconName;
  busy?: boolean;
}

export function Button({ look, small, icon, busy, children, className, disabled, ...rest }: ButtonProps) {
  const classes = ["button", look, small && "small", !children && "icon-only", className];
  return (
    <button
      type="button"
      {...rest}
      className={classes.filter(Boolean).join(" ")}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
    >
      {icon && <Icon name={busy ? "waiting" : icon} />}
      {children}
    </button>
  );
}

export function LinkButton({
  href,
  look,
  icon,
  small,
  children,
}: {
  href: string;
  look?: "primary" | "quiet";
  icon?: IconName;
  small?: boolean;
  children: ReactNode;
}) {
  return (
    <Link href={href} className={["button", look, small && "small"].filter(Boolean).join(" ")}>
      {icon && <Icon name={icon} />}
      {children}
    </Link>
  );
}

interface FieldProps {
  label: string;
  hint?: ReactNode;
  children(id: string, describedBy: string | undefined): ReactNode;
}

/** A label, its control and what is worth knowing about it. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const hintId = hint ? `${id}-hint` : undefined;
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children(id, hintId)}
      {hint && (
        <span className="hint" id={hintId}>
          {hint}
        </span>
      )}
    </div>
  );
}

interface TextFieldProps {
  label: string;
  value: string;
  onChange(value: string): void;
  onFocus?(): void;
  hint?: ReactNode;
  /** The parameter that it fills: what the service says about that one is shown here. */
  field?: string;
  type?: string;
  placeholder?: string;
  required?: boolean;
  autoFocus?: boolean;
  autoComplete?: string;
  minLength?: number;
  maxLength?: number;
  min?: number | string;
  max?: number | string;
  step?: number | string;
  list?: string;
  disabled?: boolean;
}

/** Text that is too long is left as it was pasted and named, instead of being cut off without a word. */
export function TextField({ label, hint, field, value, onChange, maxLength, ...rest }: TextFieldProps) {
  const failure = useContext(FailureOfForm);
  const isTooLong = maxLength !== undefined && value.length > maxLength;
  const problem = isTooLong ? `At most ${maxLength} characters; this has ${value.length}` : "";
  const refusal = field === undefined ? null : problemOf(failure, field);
  const shown = problem || refusal;
  const [isSeen, setSeen] = useState(false);
  return (
    <Field label={label} hint={shown ? <span className="bad">{shown}</span> : hint}>
      {(id, describedBy) => {
        const input = (
          <input
            {...rest}
            type={isSeen ? "text" : rest.type}
            ref={(element) => element?.setCustomValidity(problem)}
            id={id}
            aria-describedby={describedBy}
            aria-invalid={Boolean(shown) || undefined}
            className="input"
            value={value}
            onChange={(event) => onChange(event.target.value)}
          />
        );
        if (rest.type !== "password") return input;
        return (
          <span className="secret">
            {input}
            <button
              type="button"
              aria-label="Show what is typed"
              aria-pressed={isSeen}
              onClick={() => setSeen(!isSeen)}
            >
              Show
            </button>
          </span>
        );
      }}
    </Field>
  );
}

/** More choices than that are searched by typing, and only those that match are drawn. */
const LISTED_MAX = 12;

interface ChoosingProps<V extends string> {
  label: string;
  value: V;
  onChange(value: NoInfer<V>): void;
  choices: readonly Choice<NoInfer<V>>[];
}

export function SelectField<V extends string>({
  label,
  hint,
  value,
  onChange,
  choices,
  disabled,
}: ChoosingProps<V> & { hint?: ReactNode; disabled?: boolean }) {
  return (
    <Field label={label} hint={hint}>
      {(id, describedBy) =>
        choices.length > LISTED_MAX ? (
          <Combobox {...{ label, value, onChange, choices, disabled, id, describedBy }} small={false} />
        ) : (
          <select
            id={id}
            aria-describedby={describedBy}
            className="select"
            disabled={disabled}
            value={value}
            onChange={(event) => onChange(event.target.value as V)}
          >
            <Options choices={choices} />
          </select>
        )
      }
    </Field>
  );
}

/** A select inside a row of filters: its label is for those who cannot see the row. */
export function SmallSelect<V extends string>({ label, value, onChange, choices }: ChoosingProps<V>) {
  if (choices.length > LISTED_MAX) return <Combobox {...{ label, value, onChange, choices }} />;
  return (
    <select
      className="select small"
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.target.value as V)}
    >
      <Options choices={choices} />
    </select>
  );
}

const Options = ({ choices }: { choices: readonly Choice[] }) =>
  choices.map(({ value, label }) => (
    <option key={value} value={value}>
      {label}
    </option>
  ));

export function Segments<V extends string>({ label, value, onChange, choices }: ChoosingProps<V>) {
  return (
    <fieldset className="segments" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          aria-pressed={choice.value === value}
          onClick={() => onChange(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </fieldset>
  );
}

export function Check({
  label,
  checked,
  onChange,
  disabled,
}: {
  label: ReactNode;
  checked: boolean;
  onChange(checked: boolean): void;
  disabled?: boolean;
}) {
  return (
    <label className="check">
      <input
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onChange(event.target.checked)}
      />
      <span>{label}</span>
    </label>
  );
}

export function Tabs({
  label,
  tabs,
  current,
}: {
  label: string;
  current: string;
  tabs: readonly { id: string; label: string; href: string }[];
}) {
  const nav = useRef<HTMLElement>(null);
  // A phone is narrower than some rows of tabs.
  // biome-ignore lint/correctness/useExhaustiveDependencies: each time when another is current
  useEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }, [current]);
  return (
    <nav ref={nav} className="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <Link key={tab.id} href={tab.href} aria-current={tab.id === current ? "page" : undefined}>
          {tab.label}
        </Link>
      ))}
    </nav>
  );
}

const COPIED_SHOWN_MS = 1_500;

export function useCopy(): [boolean, (text: string) => void] {
  const [copied, setCopied] = useState(false);
  const copy = (text: string) => {
    writeClipboard(text).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), COPIED_SHOWN_MS);
      },
      () => toast("The browser blocked copying; select the text instead", "bad"),
    );
  };
  return [copied, copy];
}

/** The clipboard API exists only on secure origins; a selected text area works on the others. */
async function writeClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const focused = document.activeElement as HTMLElement | null;
  const area = document.createElement("textarea");
  area.value = text;
  // While a dialog is open, nothing outside it can be selected.
  ([...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!isCopied) throw new Error("not copied");
}

/** A short form that copies the whole on click. */
export function Copyable({ text, shown = text }: { text: string; shown?: string }) {
  const [copied, copy] = useCopy();
  return (
    <button
      type="button"
      className="copy"
      title={copied ? "Copied" : `Copy ${text}`}
      onClick={(event) => {
        event.stopPropagation();
        copy(text);
      }}
    >
      {copied ? "copied" : shown}
    </button>
  );
}
