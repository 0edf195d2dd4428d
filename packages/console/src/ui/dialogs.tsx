import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { useAction } from "../lib/action.ts";
import { FailureOfForm } from "../lib/field-problems.ts";
import { Button, TextField } from "./controls.tsx";
import { FormError } from "./states.tsx";

interface DialogProps {
  title: string;
  onClose(): void;
  children: ReactNode;
  kind?: "modal" | "sheet" | "modal wide";
  /** What Escape and the cross do: a form asks when something was typed, a secret stays until it was copied. */
  closing?: "at once" | "asks" | "when copied";
}

/**
 * A modal or a side sheet; the browser keeps the focus inside. A click beside it does nothing: selecting text with the
 * mouse easily ends there.
 */
export function Dialog({ title, onClose, children, kind = "modal", closing = "at once" }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const isTyped = useRef(false);
  const [isLeaving, setLeaving] = useState(false);
  const isSecret = closing === "when copied";
  const leave = () => {
    if (isSecret) return;
    if (closing === "asks" && isTyped.current) setLeaving(true);
    else onClose();
  };
  const titleId = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog || dialog.open) return;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    // A form opens with its first field focused, not the close button that comes first in the markup.
    dialog.querySelector<HTMLElement>(".dialog-body :is(input, select, textarea)")?.focus();
    // It is taken out of the page without being closed, so the browser does not restore the focus.
    return () => before?.focus();
  }, []);
  return (
    <dialog
      ref={ref}
      className={kind}
      aria-labelledby={titleId}
      // Left to the browser, a second Escape in a row closes every open dialog without asking.
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.preventDefault();
        event.stopPropagation();
        leave();
      }}
      onCancel={(event) => {
        event.preventDefault();
        leave();
      }}
      onInput={({ target }) => {
        isTyped.current ||= (target as Element).closest("dialog") === ref.current;
      }}
    >
      <div className="dialog-head">
        <h2 id={titleId}>{title}</h2>
        {!isSecret && <Button look="quiet" small icon="close" aria-label="Close" onClick={leave} />}
      </div>
      <div className="dialog-body">
        {children}
        {isSecret && (
          <div className="dialog-foot">
            <Button look="primary" onClick={onClose}>
              I have copied it
            </Button>
          </div>
        )}
      </div>
      {isLeaving && (
        <Confirm
          title="Discard what you entered?"
          consequence="It has not been saved."
          confirm="Discard"
          onConfirm={async () => onClose()}
          onClose={() => setLeaving(false)}
        />
      )}
    </dialog>
  );
}

/** A dialog around a form: submits once, shows the failure, closes when it worked. */
export function FormDialog({
  title,
  submit,
  onSubmit,
  onDone,
  onClose,
  children,
  kind,
}: DialogProps & {
  submit: string;
  onSubmit(): Promise<unknown>;
  /** Instead of closing, when it worked. */
  onDone?(): void;
}) {
  const action = useAction(onSubmit);
  const send = async (event: FormEvent) => {
    event.preventDefault();
    if (await action.run()) (onDone ?? onClose)();
  };
  return (
    <Dialog title={title} onClose={onClose} kind={kind} closing="asks">
      <form className="form" onSubmit={send}>
        <FailureOfForm value={action.error}>{children}</FailureOfForm>
        <FormError error={action.error} />
        <div className="dialog-foot">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={action.busy}>
            {submit}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** What will happen, in the words of those it happens to. */
  consequence: ReactNode;
  confirm: string;
  /** For what cannot be undone: this must be typed first. */
  typed?: string;
  onConfirm(): Promise<unknown>;
  onClose(): void;
}

export function Confirm({ title, consequence, confirm, typed, onConfirm, onClose }: ConfirmProps) {
  const [text, setText] = useState("");
  const action = useAction(onConfirm);
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        className="form"
        onSubmit={async (event) => {
          event.preventDefault();
          if (await action.run()) onClose();
        }}
      >
        <p>{consequence}</p>
        {typed !== undefined && (
          <TextField label={`Type ${typed} to confirm`} value={text} onChange={setText} autoComplete="off" />
        )}
        <FormError error={action.error} />
        <div className="dialog-foot">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            look="danger primary"
            busy={action.busy}
            disabled={typed !== undefined && text !== typed}
          >
            {confirm}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
