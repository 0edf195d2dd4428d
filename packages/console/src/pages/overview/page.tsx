import { api } from "../../lib/api.ts";
import { client, session } from "../../lib/client.ts";
import { compact, count, money, plural, points, seconds } from "../../lib/format.ts";
import { type LimitUse, limitTone, monthlyLimits } from "../../lib/limits.ts";
import { useSystemStatus } from "../../lib/live.ts";
import { useQuery } from "../../lib/query.ts";
import type { Plan } from "../../lib/records.ts";
import { Link } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { Figure, PageHead, Section } from "../../ui/page.tsx";
import { Meter, QueryFailure } from "../../ui/states.tsx";
import type { UsageSums } from "../usage/data.ts";
import { BackendStrips } from "./backends.tsx";
import { Checklist } from "./checklist.tsx";
import { DownBackends, EveryonesMonth, useMonthOfEveryone } from "./everyone.tsx";
import { LatestFailures } from "./failures.tsx";
import { FirstTokens } from "./first-token.tsx";
import { LastHour } from "./last-hour.tsx";
import { LatestRequests } from "./latest.tsx";
import { NodeStrips } from "./nodes.tsx";

const PLAN_EVERY_MS = 30_000;

export function Page() {
  const user = useStore(session)?.user;
  return (
    <>
      <PageHead title="Overview">
        What the service is doing right now, and what it has cost this month.
      </PageHead>
      {user?.is_admin && <DownBackends />}
      <Checklist isAdmin={Boolean(user?.is_admin)} />
      <Figures isAdmin={Boolean(user?.is_admin)} />
      {user?.is_admin && <EveryonesMonth />}
      {user?.is_admin && <Operations />}
      <Section title="Your latest requests">
        <LatestRequests />
      </Section>
    </>
  );
}

/** Figures of the whole instance; for administrators only. */
function Operations() {
  return (
    <>
      <div className="two-columns">
        <LastHour />
        <FirstTokens />
      </div>
      <BackendStrips />
      <NodeStrips />
      <LatestFailures />
    </>
  );
}

function Figures({ isAdmin }: { isAdmin: boolean }) {
  const all = useMonthOfEveryone("user", isAdmin).data?.totals;
  const status = useSystemStatus();
  const plan = useQuery("plan", () => api("billing.plan"), { everyMs: PLAN_EVERY_MS });
  const ofAll = all && { tokens: all.prompt_tokens + all.completion_tokens, requests: all.requests };
  const sums = isAdmin ? ofAll : plan.data?.usage;
  const health = useQuery("health", () => client.rest.health(), { everyMs: PLAN_EVERY_MS });
  return (
    <div className="stack tight">
      <div className="figures">
        <Figure
          name="Requests a minute"
          value={status.data ? count(status.data.requests_per_minute) : "–"}
          note={
            status.data
              ? `${compact(status.data.requests_total)} since the start, ${seconds(status.data.uptime_seconds * 1000)} ago`
              : "unknown"
          }
        >
          <LiveSpark samples={status.samples} />
        </Figure>
        <SpendFigure plan={plan.data} all={all} isAdmin={isAdmin} />
        <Figure
          name="Tokens this month"
          value={sums ? compact(sums.tokens) : "–"}
          note={sums ? `${plural(sums.requests, "request")}${isAdmin ? " of everyone" : ""}` : "unknown"}
        >
          {plan.data && <QuotaUse name="Token quota" use={monthlyLimits(plan.data).tokens} />}
        </Figure>
        <Figure
          name="Points in your wallet"
          value={plan.data ? points(plan.data.points_balance) : "–"}
          note={plan.data ? walletNote(plan.data) : "unknown"}
        />
        <Figure
          name="Callable models"
          value={health.data ? count(health.data.models) : "–"}
          note={status.data ? `${plural(status.data.agents_online, "node")} online` : "unknown"}
        />
      </div>
      <QueryFailure query={status} />
      <QueryFailure query={plan} />
    </div>
  );
}

const walletNote = ({ debt_points, points_per_usd }: Plan): string =>
  debt_points > 0
    ? `${points(debt_points)} owed: nothing is served until they are paid`
    : `${count(points_per_usd)} points are one dollar`;

/** What the month will have cost at this pace. */
function projected(spentUsd: number, now = new Date()): number {
  const start = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1);
  const end = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1);
  return (spentUsd * (end - start)) / Math.max(3_600_000, now.getTime() - start);
}

interface SpendProps {
  plan: Plan | undefined;
  all: UsageSums | undefined;
  isAdmin: boolean;
}

/** Everyone's for an administrator, whose own part stands below. */
function SpendFigure({ plan, all, isAdmin }: SpendProps) {
  const name = (
    <Link href={`/usage?days=month${isAdmin ? "&whose=all" : ""}`} title="Every request of this month">
      Spend this month
    </Link>
  );
  const sums = isAdmin ? all : plan?.usage;
  if (!plan || !sums) return <Figure name={name} value="–" note="unknown" />;
  return (
    <Figure
      name={name}
      value={money(sums.cost_usd)}
      note={`${money(projected(sums.cost_usd))} by the month's end at this pace`}
    >
      {isAdmin && <span className="note-line">{money(plan.usage.cost_usd)} of it by you</span>}
      <QuotaUse name={`Quota of the ${plan.current_tier} tier`} use={monthlyLimits(plan).usd} />
    </Figure>
  );
}

function QuotaUse({ name, use }: { name: string; use: LimitUse | null }) {
  return (
    <>
      {use && <Meter share={use.share} label={`${name} used`} tone={limitTone(use.share)} />}
      <span className="note-line">
        {name}: {use ? `${use.words} used` : "unlimited"}
      </span>
    </>
  );
}

function LiveSpark({ samples }: { samples: readonly number[] }) {
  const top = Math.max(1, ...samples);
  return (
    <span
      className="spark"
      role="img"
      aria-label={`Requests a minute since this page was opened: ${samples.join(", ")}`}
    >
      {Array.from({ length: 60 }, (_, i) => {
        const sample = samples[samples.length - 60 + i];
        return (
          <i
            // biome-ignore lint/suspicious/noArrayIndexKey: the slots are places on a fixed axis
            key={i}
            className={sample ? undefined : "none"}
            style={{ height: sample ? `${(sample / top) * 100}%` : undefined }}
          />
        );
      })}
    </span>
  );
}
