import type { Result } from "@model-gateway/client";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";
import { Section } from "../../ui/page.tsx";
import { FormError, Loaded, Status, When } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";

type Session = Result<"auth.sessions.list">[number];

/** "Firefox on Linux": what a person calls the program that a user agent names. */
export function programOf(userAgent: string | null): string {
  if (userAgent === null) return "unknown program";
  const browser = /(Edg|Firefox|OPR|Chrome|Safari)\//.exec(userAgent)?.[1];
  if (!browser) return userAgent.split(" ")[0]!.slice(0, 40);
  const system = /Windows|Android|iPhone|iPad|Mac OS X|Linux/.exec(userAgent)?.[0];
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera" };
  return [names[browser] ?? browser, system && `on ${system}`].filter(Boolean).join(" ");
}

export function Sessions() {
  const sessions = useQuery("sessions", () => api("auth.sessions.list"));
  const end = useAction(async (id?: string) => {
    const { ended } = await api("auth.sessions.end", id === undefined ? {} : { session_id: id });
    invalidate("sessions");
    toast(`Signed out of ${ended} ${ended === 1 ? "session" : "sessions"}`);
  });
  const columns: Column<Session>[] = [
    {
      id: "program",
      label: "Program",
      cell: ({ user_agent, current }) => (
        <span className="row wrap">
          <strong title={user_agent ?? undefined}>{programOf(user_agent)}</strong>
          {current && <Status tone="good">This one</Status>}
        </span>
      ),
    },
    { id: "ip", label: "Address", wide: true, cell: ({ ip }) => <span className="mono">{ip ?? ""}</span> },
    {
      id: "created",
      label: "Signed in",
      wide: true,
      cell: ({ created_at }) => <When time={created_at} />,
    },
    { id: "used", label: "Last used", cell: ({ last_used_at }) => <When time={last_used_at} /> },
    {
      id: "end",
      label: "",
      numeric: true,
      cell: ({ id, current, user_agent }) =>
        !current && (
          <Button
            small
            look="quiet"
            aria-label={`Sign out of ${programOf(user_agent)}`}
            onClick={() => void end.run(id)}
          >
            Sign out
          </Button>
        ),
    },
  ];
  return (
    <Section
      title="Sessions"
      actions={
        (sessions.data?.length ?? 0) > 1 && (
          <Button small busy={end.busy} onClick={() => void end.run()}>
            Sign out of all others
          </Button>
        )
      }
    >
      <FormError error={end.error} />
      <Loaded query={sessions}>
        {(list) => <Table label="Sessions" columns={columns} rows={list} rowKey={({ id }) => id} />}
      </Loaded>
    </Section>
  );
}
