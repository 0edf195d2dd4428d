import { session } from "../lib/client.ts";
import { useStore } from "../lib/store.ts";
import { LinkButton } from "./controls.tsx";
import { Note } from "./states.tsx";

/** Where a model has to be chosen and there is none: what has to be done first, and by whom. */
export function NoModels({ capability }: { capability?: string }) {
  const isAdmin = useStore(session)?.user.is_admin ?? false;
  return (
    <Note
      tone="warn"
      action={
        isAdmin && (
          <LinkButton href="/models" small>
            Models & backends
          </LinkButton>
        )
      }
    >
      <strong>
        {capability ? `No ${capability} model is connected yet.` : "No model can be called yet."}
      </strong>{" "}
      <span className="muted">
        {isAdmin
          ? "Register a backend, or check why the registered ones do not answer."
          : "An administrator has to register a backend first, or none of them answers right now."}
      </span>
    </Note>
  );
}
