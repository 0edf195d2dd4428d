import type { ReactNode } from "react";
import { api } from "../../lib/api.ts";
import { SERVICE_URL } from "../../lib/base.ts";
import { client } from "../../lib/client.ts";
import { useQuery } from "../../lib/query.ts";
import { Code } from "../../ui/code.tsx";
import { LinkButton } from "../../ui/controls.tsx";
import { Icon } from "../../ui/icons.tsx";
import { FoundServers } from "../models/found-servers.tsx";

const EVERY_MS = 3_000;

/** The way to the first answer, ticking itself off; gone once all of it is done. */
export function Checklist({ isAdmin }: { isAdmin: boolean }) {
  const health = useQuery("health", () => client.rest.health(), { everyMs: EVERY_MS });
  const keys = useQuery("keys", () => api("keys.list"), { everyMs: EVERY_MS });
  const usage = useQuery("usage any", () => api("usage.list", { limit: 1 }), { everyMs: EVERY_MS });
  if (!health.data || !keys.data) return null;
  const hasModel = health.data.models > 0;
  const hasKey = keys.data.some(({ active }) => active);
  const hasRequest = (usage.data?.total ?? 0) > 0;
  if (hasModel && hasKey && hasRequest) return null;
  const current = !hasModel ? 0 : !hasKey ? 1 : 2;
  return (
    <section className="checklist" aria-label="Getting started">
      <h2>Three steps to the first answer</h2>
      <ol>
        <Step done={hasModel} open={current === 0} title="Connect a model">
          {isAdmin ? (
            <>
              <p className="muted">
                A provider's API or a model server of your own; its models can be called as soon as it
                answers.
              </p>
              <div>
                <LinkButton href="/models?new=1" look="primary" icon="plus">
                  Register a backend
                </LinkButton>
              </div>
              <FoundServers />
              <details className="folded">
                <summary>From a terminal</summary>
                <Code label="Register a backend" text={backendCommand(SERVICE_URL)} />
              </details>
            </>
          ) : (
            <p className="muted">An administrator has to register a model server first.</p>
          )}
        </Step>
        <Step done={hasKey} open={current === 1} title="Create a key">
          <p className="muted">Programs call the gateway with a key; usage is metered under its name.</p>
          <div>
            <LinkButton href="/keys?new=1" look="primary" icon="plus">
              Create a key
            </LinkButton>
          </div>
        </Step>
        <Step done={hasRequest} open={current === 2} title="Send a request">
          <p className="muted">
            This is checked automatically once a request with one of your keys was answered.
          </p>
          <Code label="First request" text={firstRequestCommand(SERVICE_URL)} />
        </Step>
      </ol>
    </section>
  );
}

const backendCommand = (origin: string) =>
  `curl ${origin}/api/admin/backends \\
  -H "authorization: Bearer $SERVICE_ADMIN_TOKEN" \\
  -H "content-type: application/json" \\
  -d '{"name": "ollama", "type": "local-server", "url": "http://localhost:11434"}'`;

const firstRequestCommand = (origin: string) =>
  `MODEL=$(curl -s ${origin}/v1/models | grep -o '"id":"[^"]*' | head -1 | cut -d'"' -f4)
curl ${origin}/v1/chat/completions \\
  -H "authorization: Bearer $KEY" \\
  -H "content-type: application/json" \\
  -d "{\\"model\\": \\"$MODEL\\", \\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"Hello\\"}]}"`;

function Step({
  done,
  open,
  title,
  children,
}: {
  done: boolean;
  open: boolean;
  title: string;
  children: ReactNode;
}) {
  return (
    <li className={done ? "done" : open ? "current" : undefined} aria-current={open ? "step" : undefined}>
      <span className="tick">{done && <Icon name="check" />}</span>
      <div className="stack tight grow">
        <h3>
          {title}
          {done && <span className="visually-hidden"> (done)</span>}
        </h3>
        {open && children}
      </div>
    </li>
  );
}
