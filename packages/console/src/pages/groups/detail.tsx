import { RPC_CODE, RpcError } from "@model-gateway/client";
import { api } from "../../lib/api.ts";
import { session } from "../../lib/client.ts";
import { plural } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import type { Group, Member } from "../../lib/records.ts";
import { useStore } from "../../lib/store.ts";
import { LinkButton, Tabs } from "../../ui/controls.tsx";
import { NotFound, PageHead } from "../../ui/page.tsx";
import { PageSkeleton } from "../../ui/skeleton.tsx";
import { Empty, Loaded } from "../../ui/states.tsx";
import { GroupCredits } from "./credits.tsx";
import { GroupMembers } from "./members.tsx";
import { GroupModels } from "./models.tsx";
import { GroupSettings } from "./settings.tsx";

export type GroupView = Group & { members: Member[] };
const TABS = [
  { id: "members", label: "Members" },
  { id: "models", label: "Models" },
  { id: "credits", label: "Credits & ledger" },
  { id: "settings", label: "Settings" },
];

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
        const tabs = TABS.filter((entry) => manages || entry.id === "members");
        if (!tabs.some((entry) => entry.id === tab)) return <NotFound />;
        return (
          <>
            <PageHead title={group.name} actions={<LinkButton href="/groups">All groups</LinkButton>}>
              {group.description || plural(group.member_count, "member")}
            </PageHead>
            <Tabs
              label="Parts of the group"
              current={tab}
              tabs={tabs.map((entry) => ({ ...entry, href: `/groups/${id}/${entry.id}` }))}
            />
            {tab === "members" && <GroupMembers group={group} manages={manages} />}
            {tab === "models" && <GroupModels group={group} />}
            {tab === "credits" && <GroupCredits group={group} mayIssue={platformAdmin} />}
            {tab === "settings" && <GroupSettings group={group} />}
          </>
        );
      }}
    </Loaded>
  );
}
