import { api } from "../../lib/api.ts";
import { useQuery } from "../../lib/query.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { GpuBars } from "../../ui/gpus.tsx";
import { Section } from "../../ui/page.tsx";
import { BlockSkeleton } from "../../ui/skeleton.tsx";
import { Loaded, Status } from "../../ui/states.tsx";

const EVERY_MS = 5_000;

export function NodeStrips() {
  const query = useQuery("agents", () => api("agents.list"), { everyMs: EVERY_MS });
  return (
    <Section
      title="GPU nodes"
      actions={
        <LinkButton href="/nodes" look="quiet" small>
          All nodes
        </LinkButton>
      }
    >
      <Loaded query={query} outline={<BlockSkeleton height={62} />}>
        {(nodes) =>
          nodes.length === 0 ? (
            <p className="muted">
              No node is registered. A machine with GPUs that runs the agent shows its load here.
            </p>
          ) : (
            <ul className="strips">
              {nodes.map((node) => (
                <li key={node.agent_id}>
                  <span className="ellipsis">
                    <strong>{node.name}</strong>
                  </span>
                  <Status tone={node.online ? "good" : "bad"}>{node.online ? "Online" : "Offline"}</Status>
                  <GpuBars gpus={node.gpus} old={!node.online} />
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
    </Section>
  );
}
