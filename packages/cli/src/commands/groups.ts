import { type Client, oneTimeLink, type Result } from "@model-gateway/client";
import { act, CliError, type Command, needed, text, UsageError } from "../command.ts";

type Group = Result<"group.list">[number];
type Member = Result<"group.members.list">[number];

/** The one group of yours that a name or an id names. */
export async function findGroup(client: Client, wanted: string): Promise<Group> {
  const groups = await client.call("group.list");
  const found = groups.filter(({ id, name }) => id === wanted || name === wanted);
  if (found.length === 0)
    throw new CliError(`no group of yours is ${wanted}; model-gateway groups lists them`);
  if (found.length > 1)
    throw new CliError(`${found.length} groups are called ${wanted}; give the id instead`);
  return found[0]!;
}

export const groups: Command = {
  name: "groups",
  summary: "Groups that share points: list, create, members, invitations",
  examples: [
    "model-gateway groups",
    "model-gateway groups create Analysts",
    "model-gateway groups members Analysts",
    "model-gateway groups add Analysts ada@example.com --role admin",
    "model-gateway groups remove Analysts ada@example.com",
    "model-gateway groups invite Analysts",
  ],
  actions: ["list", "create", "members", "add", "remove", "invite", "delete"],
  options: {
    role: { type: "string", help: "admin or member, unless given" },
    description: { type: "string", help: "with create: what it is for" },
  },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const group = () => needed(words, 1, "the name or id of the group");
    const role = () => {
      const given = text(options, "role") ?? "member";
      if (given !== "admin" && given !== "member") throw new UsageError("--role must be admin or member");
      return given;
    };
    const list = async () =>
      output.table(
        await client.call("group.list"),
        {
          name: (row: Group) => row.name,
          members: (row: Group) => String(row.member_count),
          "my role": (row: Group) => row.my_role ?? "",
          created: (row: Group) => row.created_at.slice(0, 10),
          id: (row: Group) => row.id,
        },
        "No groups yet; make one: model-gateway groups create <name>",
      );
    const create = async () => {
      const description = text(options, "description");
      const made = await client.call("group.create", { name: group(), ...(description && { description }) });
      output.result(made, () => `${made.name} is made; its id is ${made.id}`);
    };
    const members = async () => {
      const { id } = await findGroup(client, group());
      output.table(
        await client.call("group.members.list", { group_id: id, include_inactive: true }),
        {
          email: (row: Member) => row.email,
          name: (row: Member) => row.name,
          role: (row: Member) => (row.is_owner ? "owner" : row.role),
          state: (row: Member) => (row.is_active ? "active" : "disabled"),
          multiplier: (row: Member) => String(row.cost_multiplier),
        },
        "No members",
      );
    };
    const add = async () => {
      const found = await findGroup(client, group());
      const email = needed(words, 2, "the email of the person");
      const member = await client.call("group.members.add", { group_id: found.id, email, role: role() });
      output.result(member, () => `${member.email} is in ${found.name}, as ${member.role}`);
    };
    const remove = async () => {
      const found = await findGroup(client, group());
      const person = needed(words, 2, "the email of the person");
      await client.call("group.members.remove", { group_id: found.id, user_id: person });
      output.result({ ok: true }, () => `${person} is no longer in ${found.name}`);
    };
    const invite = async () => {
      const found = await findGroup(client, group());
      const email = words[2];
      const made = await client.call("group.invite.create", {
        group_id: found.id,
        role: role(),
        ...(email && { email }),
      });
      output.note(
        `Good until ${made.expires_at.slice(0, 10)}, ${made.max_uses === 1 ? "once" : `${made.max_uses} times`}:`,
      );
      output.result(made, () => oneTimeLink(connection.url, "join", made.token));
    };
    const drop = async () => {
      const found = await findGroup(client, group());
      await client.call("group.delete", { group_id: found.id });
      output.result({ ok: true }, () => `${found.name} is deleted`);
    };
    await act(words, { list, create, members, add, remove, invite, delete: drop }, "list");
  },
};
