import { HEALTH_TONE, kindOf, useBackends } from "../../lib/backends.ts";
import { adminToken } from "../../lib/client.ts";
import { useStore } from "../../lib/store.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { Loaded, Note, Status } from "../../ui/states.tsx";

export function BackendStrips() {
  const token = useStore(adminToken);
  const query = useBackends();
  return (
    <Section
      title="Backends"
      actions={
        <LinkButton href="/models" look="quiet" small>
          All backends
        </LinkButton>
      }
    >
      {token === null ? (
        <Note
          action={
            <LinkButton href="/models" small>
              Enter the token
            </LinkButton>
          }
        >
          <span className="muted">
            The health of backends is shown once you have entered the admin token.
          </span>
        </Note>
      ) : (
        <Loaded query={query} lines={2}>
          {({ backends }) =>
            backends.health.length === 0 ? (
              <p className="muted">No backend is registered yet.</p>
            ) : (
              <ul className="strips">
                {backends.health.map((backend) => (
                  <li key={backend.label}>
                    <span className="ellipsis">
                      <strong>{backend.name ?? backend.label}</strong>{" "}
                      <span className="muted small">{kindOf(backend)}</span>
                    </span>
                    <Status tone={HEALTH_TONE[backend.state] ?? "plain"}>{backend.state}</Status>
                  </li>
                ))}
              </ul>
            )
          }
        </Loaded>
      )}
    </Section>
  );
}
