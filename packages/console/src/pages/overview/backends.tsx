import { type BackendActivity, useActivity } from "../../lib/activity.ts";
import { useBackends } from "../../lib/backends.ts";
import { plural, seconds } from "../../lib/format.ts";
import { BackendStatus } from "../../ui/backend-status.tsx";
import { LinkButton } from "../../ui/controls.tsx";
import { LostCache } from "../../ui/lost-cache.tsx";
import { Section } from "../../ui/page.tsx";
import { ProbeStrip } from "../../ui/probe-strip.tsx";
import { BlockSkeleton } from "../../ui/skeleton.tsx";
import { Loaded } from "../../ui/states.tsx";

export function BackendStrips() {
  const query = useActivity();
  return (
    <Section
      title="Backends"
      actions={
        <LinkButton href="/models" look="quiet" small>
          All backends
        </LinkButton>
      }
    >
      <Loaded query={query} outline={<BlockSkeleton height={76} />}>
        {({ backends, backends_total }) =>
          backends.length === 0 ? (
            <p className="muted">
              No backend is registered yet. Each one shows its last hour of probes here, and what is wrong
              with it.
            </p>
          ) : (
            <div className="stack tight">
              <ul className="strips">
                {backends.map((backend) => (
                  <BackendStrip key={backend.name} backend={backend} />
                ))}
              </ul>
              {backends_total > backends.length && (
                <p className="muted small">
                  And {plural(backends_total - backends.length, "more")}, all of them healthier.
                </p>
              )}
            </div>
          )
        }
      </Loaded>
    </Section>
  );
}

function BackendStrip({
  backend: { name, kind, state, probes, lost_cache_share },
}: {
  backend: BackendActivity;
}) {
  const known = useBackends().data?.backends.find((each) => each.name === name);
  const latestMs = probes.at(-1)?.latency_ms;
  return (
    <li>
      <span className="ellipsis">
        <strong>{name}</strong> <span className="muted small">{kind}</span>
      </span>
      <span className="row wrap">
        {known && <BackendStatus backend={known} short />}
        {latestMs != null && state === "Healthy" && <span className="muted">{seconds(latestMs)}</span>}
      </span>
      <ProbeStrip name={name} probes={probes} />
      {lost_cache_share !== null && <LostCache share={lost_cache_share} />}
    </li>
  );
}
