import { api } from "../../lib/api.ts";
import { statusOf, useBackends } from "../../lib/backends.ts";
import { useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { Note } from "../../ui/states.tsx";
import { type Grouping, thisMonth } from "../usage/data.ts";
import { GroupTable } from "../usage/tables.tsx";

const EVERY_MS = 60_000;
const SHOWN = 5;

/** What needs an administrator now. */
export function DownBackends() {
  const down = (useBackends().data?.backends ?? []).filter(
    (backend) => backend.probed_at !== null && statusOf(backend).tone === "bad",
  );
  return down.map((backend) => (
    <Note key={backend.name} tone="bad">
      <strong>
        <Link href={`/models?open=${encodeURIComponent(backend.name ?? "")}`}>{backend.name}</Link> is down.
      </strong>{" "}
      {statusOf(backend).text}
    </Note>
  ));
}

/** Who and what costs most this month, of everyone; nothing before the first request. */
export function EveryonesMonth() {
  return (
    <>
      <Top by="user" title="Top people this month" />
      <Top by="model" title="Top models this month" />
    </>
  );
}

export const useMonthOfEveryone = (by: Grouping, isAdmin = true) =>
  useQuery(
    isAdmin ? `usage top ${by}` : null,
    () => api("usage.series", { ...thisMonth(), everyone: true, by }),
    { everyMs: EVERY_MS },
  );

function Top({ by, title }: { by: Grouping; title: string }) {
  const series = useMonthOfEveryone(by);
  if (!series.data?.groups.length) return null;
  return (
    <Section
      title={title}
      actions={
        <LinkButton small href={`/usage?whose=all&view=table&by=${by}`}>
          All
        </LinkButton>
      }
    >
      <GroupTable groups={series.data.groups.slice(0, SHOWN)} grouping={by} />
    </Section>
  );
}
