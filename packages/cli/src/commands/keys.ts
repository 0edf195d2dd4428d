import { act, CliError, type Command, needed, text } from "../command.ts";

interface KeyRow {
  id: string;
  name: string;
  key_prefix: string;
  project: string;
  active: boolean;
  created_at: string;
}

export const keys: Command = {
  name: "keys",
  summary: "List, create and revoke your API keys",
  examples: [
    "model-gateway keys",
    "model-gateway keys create laptop --project work",
    "model-gateway keys revoke laptop",
  ],
  actions: ["list", "create", "revoke"],
  options: {
    project: { type: "string", help: "label that usage can be looked at by" },
    group: { type: "string", help: "id of the group whose pool pays" },
  },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const list = async () => {
      const rows = await client.call("keys.list");
      output.table(
        rows,
        {
          name: (row: KeyRow) => row.name,
          key: (row: KeyRow) => `service-${row.key_prefix}…`,
          project: (row: KeyRow) => row.project,
          state: (row: KeyRow) => (row.active ? "active" : "revoked"),
          created: (row: KeyRow) => row.created_at.slice(0, 10),
          id: (row: KeyRow) => row.id,
        },
        "No keys yet; make one: model-gateway keys create <name>",
      );
    };
    const create = async () => {
      const project = text(options, "project");
      const group = text(options, "group");
      const key = await client.call("keys.create", {
        name: needed(words, 1, "the name of the key"),
        ...(project && { project }),
        ...(group && { group_id: group }),
      });
      output.note("Shown once; keep it now:");
      output.result(key, () => key.key);
    };
    const revoke = async () => {
      const wanted = needed(words, 1, "the name or id of the key");
      const rows = await client.call("keys.list");
      const found = rows.find(({ id, name, active }) => id === wanted || (name === wanted && active));
      if (!found) throw new CliError(`no active key is called ${wanted}; model-gateway keys lists them`);
      await client.call("keys.revoke", { key_id: found.id });
      output.result({ ok: true }, () => `${found.name} no longer works`);
    };
    await act(words, { list, create, revoke }, "list");
  },
};
