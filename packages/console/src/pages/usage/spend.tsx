import type { Params } from "@model-gateway/client";
import { useMemo } from "react";
import { api } from "../../lib/api.ts";
import { compact, count, money, shortDay } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { TimeChart } from "../../ui/chart.tsx";
import { Figure, Section } from "../../ui/page.tsx";
import { Loaded } from "../../ui/states.tsx";
import { FORMATS, type Grouping, gridOf, lastDays } from "./data.ts";
import { GroupTable } from "./tables.tsx";

const DAYS = 30;

/** With `manages`: of the whole group, which its admins may see. */
type Whose = Pick<Params<"usage.series">, "everyone" | "user_id" | "group_id"> & { manages?: string };

/** What somebody, or a group, spent by day. */
export function Spend({ whose, by, title }: { whose: Whose; by: Grouping; title: string }) {
  const range = useMemo(() => lastDays(DAYS), []);
  const series = useQuery(`usage of ${JSON.stringify(whose)} by ${by}`, () =>
    whose.manages
      ? api("group.series", { ...range, group_id: whose.manages, by })
      : api("usage.series", { ...range, ...whose, by }),
  );
  return (
    <Loaded query={series}>
      {(known) => {
        const { totals, groups } = known;
        // Where nothing is billed, tokens tell more.
        const metric = totals.cost_usd > 0 ? "cost" : "tokens";
        const grid = gridOf(known, { range, grouping: by, metric });
        return (
          <>
            <div className="figures">
              <Figure name={`Cost, ${DAYS} days`} value={money(totals.cost_usd)} />
              <Figure name="Requests" value={count(totals.requests)} />
              <Figure name="Tokens in" value={compact(totals.prompt_tokens)} />
              <Figure name="Tokens out" value={compact(totals.completion_tokens)} />
            </div>
            {groups.length > 0 && (
              <Section title={title}>
                <TimeChart
                  label={`${metric} by day and ${by}`}
                  times={grid.times}
                  series={grid.series}
                  formatTicks={FORMATS[metric].alike}
                  formatParts={FORMATS[metric].parts}
                  formatTime={shortDay}
                />
                <GroupTable groups={groups} grouping={by} />
              </Section>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
