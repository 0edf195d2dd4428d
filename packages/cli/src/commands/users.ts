import { type Client, oneTimeLink, type Params, type Result } from "@model-gateway/client";
import { act, CliError, type Command, needed, text } from "../command.ts";

type Person = Result<"users.list">["users"][number];
type Patch = Omit<Params<"users.update">, "user_id">;

const FOUND_MAX = 200;

/** The one account that an email or an id names. */
export async function findUser(client: Client, wanted: string): Promise<Person> {
  const { users } = await client.call("users.list", { search: wanted, limit: FOUND_MAX });
  const found = users.find(({ id, email }) => id === wanted || email === wanted.toLowerCase());
  if (!found) throw new CliError(`no account is ${wanted}; model-gateway users lists them`);
  return found;
}

export const users: Command = {
  name: "users",
  summary: "Accounts: list, invite, create, disable, make administrators; for administrators",
  examples: [
    "model-gateway users --search ada",
    "model-gateway users invite ada@example.com --tier pro",
    "model-gateway users create ada@example.com --name 'Ada Lovelace'",
    "model-gateway users disable ada@example.com",
    "model-gateway users promote ada@example.com",
    "model-gateway users confirm ada@example.com",
    "model-gateway users reset ada@example.com",
  ],
  actions: ["list", "invite", "create", "enable", "disable", "promote", "demote", "confirm", "tier", "reset"],
  options: {
    search: { type: "string", help: "part of the email or the name" },
    tier: { type: "string", help: "tier of the new account" },
    name: { type: "string", help: "name of the new account" },
    admin: { type: "boolean", help: "with create: an administrator" },
  },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const tier = text(options, "tier");
    const linkOf = (token: string) => oneTimeLink(connection.url, "welcome", token);
    const list = async () => {
      const { users: rows, total } = await client.call("users.list", {
        search: text(options, "search") ?? "",
        limit: FOUND_MAX,
      });
      output.table(
        rows,
        {
          email: (row: Person) => row.email,
          name: (row: Person) => row.name,
          state: (row: Person) => (row.disabled ? "disabled" : "active"),
          rights: (row: Person) => (row.is_admin ? "administrator" : ""),
          tier: (row: Person) => row.tier,
          keys: (row: Person) => String(row.active_keys),
          seen: (row: Person) => row.last_seen_at?.slice(0, 10) ?? "never",
          id: (row: Person) => row.id,
        },
        "No account matches",
      );
      if (total > rows.length) output.note(`${total - rows.length} more; narrow it down with --search`);
    };
    const invite = async () => {
      const email = words[1];
      const link = await client.call("users.invite", { ...(email && { email }), ...(tier && { tier }) });
      output.note(`Good once, until ${link.expires_at.slice(0, 10)}:`);
      output.result(link, () => linkOf(link.token));
    };
    const create = async () => {
      const name = text(options, "name");
      const made = await client.call("users.create", {
        email: needed(words, 1, "the email of the account"),
        is_admin: Boolean(options.admin),
        ...(name && { name }),
        ...(tier && { tier }),
      });
      output.note(
        `${made.email} chooses a password with this link, good once until ${made.link.expires_at.slice(0, 10)}:`,
      );
      output.result(made, () => linkOf(made.link.token));
    };
    const change = (patch: Patch, said: string) => async () => {
      const person = await findUser(client, needed(words, 1, "the email or id of the account"));
      await client.call("users.update", { user_id: person.id, ...patch });
      output.result({ ok: true }, () => `${person.email} ${said}`);
    };
    const reset = async () => {
      const person = await findUser(client, needed(words, 1, "the email or id of the account"));
      const link = await client.call("users.password.reset", { user_id: person.id });
      output.note(
        `The old password and every session have ended. ${person.email} chooses a new one with this link:`,
      );
      output.result(link, () => linkOf(link.token));
    };
    await act(
      words,
      {
        list,
        invite,
        create,
        enable: change({ disabled: false }, "can sign in again"),
        disable: change({ disabled: true }, "is disabled; keys and sessions have ended"),
        promote: change({ is_admin: true }, "is an administrator now"),
        demote: change({ is_admin: false }, "is no longer an administrator"),
        confirm: change({ email_verified: true }, "is confirmed as the owner's address"),
        tier: () => change({ tier: needed(words, 2, "the tier") }, `is in the tier ${words[2]} now`)(),
        reset,
      },
      "list",
    );
  },
};
