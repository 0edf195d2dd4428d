import { type Result, RPC_CODE, RpcError } from "@model-gateway/client";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import { money, plural, points } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { useStore } from "../../lib/store.ts";
import { LinkButton, Tabs } from "../../ui/controls.tsx";
import { Figure, NotFound, PageHead } from "../../ui/page.tsx";
import { PageSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { Spend } from "../usage/spend.tsx";
import { GroupCredits } from "./credits.tsx";
import { GroupMembers } from "./members.tsx";
import { GroupModels } from "./models.tsx";
import { GroupSettings } from "./settings.tsx";

export type GroupView = Result<"group.get">;
const TABS = [
  { id: "members", label: "Members" },
  { id: "models", label: "Models" },
  { id: "spend", label: "Spend" },
  { id: "credits", label: "Credits & ledger" },
  { id: "settings", label: "Settings" },
];
const FOR_MEMBERS: ReadonlySet<string> = new Set(["members", "models", "spend"]);

export function GroupDetail({ id, tab }: { id: string; tab: string }) {
  const query = useQuery(`group ${id}`, () => api("group.get", { group_id: id }));
  const platformAdmin = useStore(session)?.user.is_admin ?? false;
  // An id that was mistyped and a group of other people are refused alike: there is nothing to show either way.
  if (!query.data && query.error instanceof RpcError && query.error.code !== RPC_CODE.internal)
    return (
      <Empty
        icon="groups"
        title="Group not found"
        action={<LinkButton href="/groups">All groups</LinkButton>}
      >
        It may have been deleted, or you are not a member of it.
      </Empty>
    );
  return (
    <Loaded query={query} outline={<PageSkeleton />}>
      {(group) => {
        const manages = platformAdmin || group.my_role === "owner" || group.my_role === "admin";
        const tabs = TABS.filter(({ id: each }) => manages || FOR_MEMBERS.has(each));
        if (!tabs.some((entry) => entry.id === tab)) return <NotFound />;
        return (
          <>
            <PageHead title={group.name} actions={<LinkButton href="/groups">All groups</LinkButton>}>
              {group.description || plural(group.member_count, "member")}
            </PageHead>
            <GroupFigures group={group} />
            <Tabs
              label="Parts of the group"
              current={tab}
              tabs={tabs.map((entry) => ({ ...entry, href: `/groups/${id}/${entry.id}` }))}
            />
            {tab === "members" && <GroupMembers group={group} manages={manages} />}
            {tab === "models" && <GroupModels group={group} manages={manages} />}
            {tab === "spend" && <GroupSpend group={group} manages={manages} />}
            {tab === "credits" && <GroupCredits group={group} mayIssue={platformAdmin} />}
            {tab === "settings" && <GroupSettings group={group} mayIssue={platformAdmin} />}
          </>
        );
      }}
    </Loaded>
  );
}

/** What there is for everyone in the group, and what of it is one's own. */
function GroupFigures({ group }: { group: GroupView }) {
  const { balance, monthly_refill, member_budget_usd, my_month_usd, my_role, models } = group;
  return (
    <div className="figures">
      <Figure
        name="Pool"
        value={points(balance)}
        note={monthly_refill === null ? undefined : `filled up to ${points(monthly_refill)} each month`}
      />
      {my_role && (
        <Figure
          name="Your part this month"
          value={money(my_month_usd)}
          note={member_budget_usd === null ? undefined : `of ${money(member_budget_usd)}`}
        />
      )}
      <Figure
        name="Models"
        value={
          group.enforce_model_allowlist
            ? `${models.allowed.length} allowed`
            : models.denied.length === 0
              ? "all"
              : `all but ${models.denied.length}`
        }
      />
    </div>
  );
}

/** Admins see who spends it; a member sees their own part. */
const GroupSpend = ({ group, manages }: { group: GroupView; manages: boolean }) =>
  manages ? (
    <Spend whose={{ manages: group.id }} by="user" title="By member" />
  ) : (
    <Spend whose={{ group_id: group.id }} by="model" title="Your spend by model" />
  );
