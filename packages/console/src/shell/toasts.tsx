import { useEffect, useRef } from "react";
import { useStore } from "../lib/store.ts";
import { dismiss, toasts } from "../lib/toast.ts";
import { Button } from "../ui/controls.tsx";
import { Icon } from "../ui/icons.tsx";

export function Toasts() {
  const shown = useStore(toasts);
  const box = useRef<HTMLDivElement>(null);
  const newest = shown.at(-1)?.id;
  useEffect(() => {
    if (newest === undefined) return;
    // Reopened, it lies above every dialog, even one that was opened later.
    box.current?.hidePopover();
    box.current?.showPopover();
  }, [newest]);
  return (
    <div ref={box} popover="manual" className="toasts" role="status" aria-live="polite">
      {shown.map(({ id, text, tone }) => (
        <div key={id} className={`toast ${tone === "bad" ? "bad" : ""}`}>
          <Icon name={tone === "good" ? "ok" : "error"} />
          <span className="grow">{text}</span>
          <Button look="quiet" small icon="close" aria-label="Dismiss" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  );
}
