import type { Result } from "@model-gateway/client";
import { useState } from "react";
import { api } from "../../lib/api.ts";
import { exactTime, plural, shortTime } from "../../lib/format.ts";
import { useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { LinkButton } from "../../ui/controls.tsx";
import { Skeleton } from "../../ui/skeleton.tsx";
import { Loaded } from "../../ui/states.tsx";

type Entry = Result<"conversations.list">[number];

const DAY_MS = 86_400_000;

function ageOf({ updated_at }: Entry): string {
  const today = new Date().setHours(0, 0, 0, 0);
  const at = Date.parse(updated_at);
  if (at >= today) return "Today";
  if (at >= today - DAY_MS) return "Yesterday";
  return at >= today - 7 * DAY_MS ? "Last 7 days" : "Earlier";
}

/** All conversations, the latest first, to be searched by their titles. */
export function ConversationList({ current }: { current: string | undefined }) {
  const list = useQuery("conversations", () => api("conversations.list"));
  const [wanted, setWanted] = useState("");
  const Heading = current ? "h2" : "h1";
  const matches = ({ title }: Entry) => title.toLowerCase().includes(wanted.trim().toLowerCase());
  return (
    <div className={current ? "chat-list with-chat" : "chat-list"}>
      <div className="row between">
        <Heading className="chat-heading">Conversations</Heading>
        <LinkButton href="/conversations/new" look="primary" small icon="plus">
          New
        </LinkButton>
      </div>
      <input
        className="input small"
        type="search"
        aria-label="Search the conversations"
        placeholder="Search"
        value={wanted}
        onChange={(event) => setWanted(event.target.value)}
      />
      <nav aria-label="Conversations">
        <Loaded query={list} outline={<Skeleton lines={8} />}>
          {(all) => {
            const shown = all.filter(matches);
            if (all.length === 0) return <p className="muted">No conversations yet</p>;
            if (shown.length === 0) return <p className="muted">No title matches.</p>;
            return [...Map.groupBy(shown, ageOf)].map(([age, entries]) => (
              <section key={age} aria-label={age}>
                <p className="muted small">{age}</p>
                {entries.map((entry) => (
                  <Link
                    key={entry.id}
                    href={`/conversations/${entry.id}`}
                    aria-current={entry.id === current ? "page" : undefined}
                    title={`${entry.title}, ${exactTime(entry.updated_at)}`}
                  >
                    <span className="ellipsis">{entry.title}</span>
                    <span className="muted small nowrap">
                      {plural(entry.message_count, "message")}, {shortTime(entry.updated_at)}
                    </span>
                  </Link>
                ))}
              </section>
            ));
          }}
        </Loaded>
      </nav>
    </div>
  );
}
