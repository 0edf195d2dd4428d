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
}

/** A modal or a side sheet; the browser keeps the focus inside and Escape closes it. */
export function Dialog({ title, onClose, children, kind = "modal" }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
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
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, the click is only the backdrop
    <dialog
      ref={ref}
      className={kind}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) onClose();
      }}
    >
      <div className="dialog-head">
        <h2 id={titleId}>{title}</h2>
        <Button look="quiet" small icon="close" aria-label="Close" onClick={onClose} />
      </div>
      <div className="dialog-body">{children}</div>
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
    <Dialog title={title} onClose={onClose} kind={kind}>
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
