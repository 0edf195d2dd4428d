import type { Result } from "@model-gateway/client";
import { act, CliError, type Command, needed, text, UsageError, wholeNumber } from "../command.ts";

type Route = Result<"routes.list">[number];
type AuditEntry = Result<"audit.list">["entries"][number];

const targetInWords = ({ model, backend, weight }: Route["targets"][number]) =>
  `${model}${backend ? `@${backend}` : ""}${weight > 1 ? ` (weight ${weight})` : ""}`;

export const routes: Command = {
  name: "routes",
  summary: "Names of your own for models, with fallbacks; for administrators",
  examples: [
    "model-gateway routes",
    "model-gateway routes set assistant qwen3:8b gpt-4o-mini --within 10",
    "model-gateway routes set assistant qwen3:8b@rack",
    "model-gateway routes delete assistant",
  ],
  actions: ["list", "set", "delete"],
  options: {
    within: { type: "string", help: "with set: seconds until the next target is tried" },
  },
  async run({ words, options, output, connection }) {
    const client = await connection.signedIn();
    const name = () => needed(words, 1, "the name of the route");
    const list = async () =>
      output.table(
        await client.call("routes.list"),
        {
          name: (row: Route) => row.name,
          "targets, in order": ({ targets }: Route) => targets.map(targetInWords).join(", then "),
          "next after": ({ begin_within_seconds }: Route) =>
            begin_within_seconds === null ? "" : `${begin_within_seconds} s`,
        },
        "No route yet; make one: model-gateway routes set <name> <model> …",
      );
    const set = async () => {
      const targets = words.slice(2).map((word, at) => {
        const [model = "", backend] = word.split("@");
        return { model, ...(backend && { backend }), order: at + 1 };
      });
      if (targets.length === 0) throw new UsageError("the models that it stands for are missing");
      const within = wholeNumber(options, "within");
      await client.call("routes.set", {
        name: name(),
        targets,
        ...(within !== null && { begin_within_seconds: within }),
      });
      output.result({ ok: true }, () => `${name()} stands for ${words.slice(2).join(", then ")}`);
    };
    const drop = async () => {
      await client.call("routes.delete", { name: name() });
      output.result({ ok: true }, () => `${name()} is deleted`);
    };
    await act(words, { list, set, delete: drop }, "list");
  },
};

export const audit: Command = {
  name: "audit",
  summary: "Who changed what, newest first; for administrators",
  examples: ["model-gateway audit", "model-gateway audit --actor ada@example.com --action keys."],
  options: {
    limit: { type: "string", help: "entries to show, 50 unless given" },
    actor: { type: "string", help: "part of an email" },
    action: { type: "string", help: "how the action begins, e.g. users." },
  },
  async run({ options, output, connection }) {
    const [actor, action] = [text(options, "actor"), text(options, "action")];
    const { entries } = await (await connection.signedIn()).call("audit.list", {
      limit: wholeNumber(options, "limit") ?? 50,
      ...(actor && { actor }),
      ...(action && { action }),
    });
    output.table(
      entries,
      {
        when: ({ at }: AuditEntry) => at.slice(0, 19).replace("T", " "),
        who: (row: AuditEntry) => row.actor,
        action: (row: AuditEntry) => row.action,
        target: ({ target }: AuditEntry) => target ?? "",
        from: ({ ip }: AuditEntry) => ip,
      },
      "No entries",
    );
  },
};

export const requests: Command = {
  name: "requests",
  summary: "All that is known of one request",
  examples: ["model-gateway requests show 019a3c1e-7c61-7b3c-a2f8-5d1c0a6a9f10"],
  actions: ["show"],
  async run({ words, output, connection }) {
    const client = await connection.signedIn();
    const show = async () => {
      const record = await client.call("requests.get", { id: needed(words, 1, "the id of the request") });
      output.result(record, () =>
        Object.entries(record)
          .filter(([, value]) => value !== null && value !== "")
          .map(([name, value]) => {
            const shown = typeof value === "object" ? JSON.stringify(value) : String(value);
            return `${name.replaceAll("_", " ").padEnd(20)} ${shown}`;
          }),
      );
    };
    if (words.length === 0)
      throw new CliError("say which: model-gateway requests show <id>; logs lists them");
    await act(words, { show }, "show");
  },
};
