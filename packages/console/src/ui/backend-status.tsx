import { useAction } from "../lib/action.ts";
import { api } from "../lib/api.ts";
import { type Backend, backendsChanged, statusOf } from "../lib/backends.ts";
import { toastError } from "../lib/toast.ts";
import { Button } from "./controls.tsx";
import { Status, When } from "./states.tsx";

/** One sentence for health and circuit together, the same on every page, and the way out. */
export function BackendStatus({ backend, short = false }: { backend: Backend; short?: boolean }) {
  const { tone, text, retryAt } = statusOf(backend);
  const resume = useAction(async () => {
    await api("backends.probe", { name: backend.name, resume: true }).catch(toastError);
    backendsChanged();
  });
  return (
    <span className="row wrap">
      <Status tone={tone}>
        <span className={short ? "clamp" : undefined}>
          {text}
          {retryAt && (
            <>
              , tried again <When time={retryAt} />
            </>
          )}
        </span>
      </Status>
      {backend.enabled && backend.circuit.state !== "closed" && (
        <Button
          small
          busy={resume.busy}
          aria-label={`Resume ${backend.name}`}
          title="Send it requests again now"
          onClick={(event) => {
            event.stopPropagation();
            void resume.run();
          }}
        >
          Resume
        </Button>
      )}
    </span>
  );
}
