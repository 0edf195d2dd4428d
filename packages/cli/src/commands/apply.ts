import { readFileSync } from "node:fs";
import type { Client, Params, Result } from "@model-gateway/client";
import { stringify } from "yaml";
import { CliError, type Command, type Invocation, needed, refuseIdle, text, UsageError } from "../command.ts";
import { type Configuration, ConfigurationFile, type Entry } from "../configuration.ts";

type Section = "tiers" | "backends" | "prices" | "video_prices" | "routes" | "groups" | "settings";
type Change = Result<"config.check">["changes"][number];

const WATCH_EVERY_MS = 1_000;
/** After a failure: the service may be starting. A file that has changed is tried at once. */
const AGAIN_AFTER_MS = 10_000;

/** In this order: routes lead to backends, and groups name both. What can be removed says how. */
const KINDS: Record<Section, { one: string; remove?(client: Client, name: string): Promise<unknown> }> = {
  tiers: { one: "tier" },
  backends: { one: "backend", remove: (client, name) => client.call("backends.remove", { name }) },
  prices: { one: "price", remove: (client, model) => client.call("billing.prices.remove", { model }) },
  video_prices: { one: "video price" },
  routes: { one: "route", remove: (client, name) => client.call("routes.delete", { name }) },
  groups: { one: "group" },
  settings: {
    one: "setting",
    remove: (client, name) => client.call("settings.update", { name, value: null }),
  },
};
const SECTIONS = Object.keys(KINDS) as Section[];

const nameOf = (entry: Entry) => String(entry.name ?? entry.model);

interface Step {
  section: Section;
  name: string;
  /** What people read before it is done. */
  lines: string[];
  run(client: Client): Promise<unknown>;
}

/** The model lists of a group as they shall be. */
async function setModels(client: Client, group_id: string, before: Entry, entry: Entry): Promise<void> {
  for (const [field, method] of [
    ["allowed_models", "group.models.allow"],
    ["denied_models", "group.models.deny"],
  ] as const) {
    const [now, wanted] = [before[field] ?? [], entry[field] ?? before[field] ?? []] as string[][];
    const gone = now!.filter((id) => !wanted!.includes(id));
    const fresh = wanted!.filter((id) => !now!.includes(id));
    if (gone.length > 0) await client.call(method, { group_id, model_ids: gone, remove: true });
    if (fresh.length > 0) await client.call(method, { group_id, model_ids: fresh });
  }
}

/** Two who apply a file at once both make it: the older one stays. */
async function createGroup(client: Client, name: string): Promise<string> {
  const { id } = await client.call("group.create", { name });
  const same = (await client.call("group.list", { everyone: true })).filter((group) => group.name === name);
  const ages = same.map((group) => `${group.created_at} ${group.id}`).sort();
  const oldest = ages[0]!.split(" ")[1]!;
  if (oldest !== id) await client.call("group.delete", { group_id: id });
  return oldest;
}

async function write(
  client: Client,
  section: Section,
  entry: Entry,
  before: Entry | undefined,
): Promise<void> {
  switch (section) {
    case "tiers":
      return void (await client.call("billing.tiers.set", entry as Params<"billing.tiers.set">));
    case "backends":
      return void (await client.call(
        before ? "backends.update" : "backends.add",
        entry as Params<"backends.update">,
      ));
    case "prices":
      return void (await client.call("billing.prices.set", entry as Params<"billing.prices.set">));
    case "video_prices":
      return void (await client.call(
        "billing.prices.video.set",
        entry as Params<"billing.prices.video.set">,
      ));
    case "routes":
      return void (await client.call("routes.set", entry as Params<"routes.set">));
    case "settings":
      return void (await client.call("settings.update", entry as Params<"settings.update">));
    case "groups": {
      const { allowed_models, denied_models, ...fields } = entry as Entry & { name: string };
      const group_id = before ? String(before.id) : await createGroup(client, fields.name);
      await client.call("group.update", { ...fields, group_id });
      return setModels(client, group_id, before ?? {}, { allowed_models, denied_models });
    }
  }
}

const shown = (value: unknown) => (value === undefined ? "nothing" : JSON.stringify(value));

function linesOf(file: ConfigurationFile, change: Change, entry: Entry, before: Entry | undefined): string[] {
  const secrets = new Set(["api_key", "headers", ...((before?.secrets as string[] | undefined) ?? [])]);
  const { one } = KINDS[change.section as Section];
  if (!before) return [`+ ${one} ${nameOf(entry)}`];
  return [
    `~ ${one} ${nameOf(entry)}`,
    ...change.fields.map((field) =>
      secrets.has(field) || file.secrets.has(entry[field])
        ? `    ${field}: another secret`
        : `    ${field}: ${shown(before[field])} → ${shown(entry[field])}`,
    ),
  ];
}

/** What is to be done, after the service has found nothing wrong with all of it. */
async function plan(client: Client, file: ConfigurationFile, prune: boolean): Promise<Step[]> {
  const configuration: Configuration = file.read(process.env);
  const { present, problems, changes } = await client.call("config.check", { configuration });
  if (problems.length > 0)
    throw new CliError(
      ["nothing was changed", ...problems.map(({ path, message }) => file.problem(path, message))].join(
        "\n  ",
      ),
    );
  const isSame = (section: Section, a: Entry, b: Entry) =>
    section === "prices" ? nameOf(a).toLowerCase() === nameOf(b).toLowerCase() : nameOf(a) === nameOf(b);
  return SECTIONS.flatMap((section) => {
    const given = configuration[section];
    const written = changes
      .filter((change) => change.section === section)
      .map((change): Step => {
        const entry = given![change.at]!;
        const before = present[section]!.find((each) => isSame(section, each, entry));
        const lines = linesOf(file, change, entry, before);
        return { section, name: nameOf(entry), lines, run: (on) => write(on, section, entry, before) };
      });
    const { one, remove } = KINDS[section];
    const left = present[section]!.filter((each) => !given?.some((entry) => isSame(section, each, entry)));
    const removed = (prune && given && remove ? left : []).map((each): Step => {
      const name = nameOf(each);
      return { section, name, lines: [`- ${one} ${name}`], run: (on) => remove!(on, name) };
    });
    return [...written, ...removed];
  });
}

async function applyOnce({ options, output, connection }: Invocation, path: string): Promise<void> {
  const client = await connection.signedIn();
  const steps = await plan(client, new ConfigurationFile(path), options.prune === true);
  const isDry = options["dry-run"] === true;
  if (!output.json) for (const line of steps.flatMap(({ lines }) => lines)) output.write(`${line}\n`);
  let done = 0;
  for (const step of isDry ? [] : steps) {
    await step.run(client).catch((error: Error) => {
      const of = `${done} of ${steps.length} changes were made; apply goes on from there`;
      throw new CliError(`${KINDS[step.section].one} ${step.name}: ${error.message}. ${of}`);
    });
    done++;
  }
  const changes = steps.map(({ section, name, lines }) => ({ section, name, lines }));
  output.result({ changes, written: done }, () => {
    if (steps.length === 0) return "Nothing to change";
    const all = steps.length === 1 ? "1 change" : `${steps.length} changes`;
    return isDry ? `${all}; nothing was written` : `${all} made`;
  });
}

/** Mounted files are replaced by links and renames, which not every watcher notices: the text itself is compared. */
async function follow(invocation: Invocation, path: string): Promise<never> {
  let tried: string | null = null;
  let againAtMs = Number.POSITIVE_INFINITY;
  let told = "";
  for (; ; await Bun.sleep(WATCH_EVERY_MS)) {
    try {
      const content = readFileSync(path, "utf8");
      if (content === tried && Date.now() < againAtMs) continue;
      tried = content;
      againAtMs = Number.POSITIVE_INFINITY;
      await applyOnce(invocation, path);
      told = "";
    } catch (error) {
      againAtMs = Date.now() + AGAIN_AFTER_MS;
      const { message } = error as Error;
      if (message !== told) invocation.output.note(`model-gateway apply: ${message}`);
      told = message;
    }
  }
}

export const apply: Command = {
  name: "apply",
  summary: "Make backends, routes, prices, tiers, groups and settings what a file says; for administrators",
  examples: [
    "model-gateway apply -f gateway.yaml --dry-run",
    "model-gateway apply -f gateway.yaml",
    "model-gateway apply -f /config/gateway.yaml --watch",
  ],
  options: {
    file: { type: "string", short: "f", help: "the configuration, in YAML" },
    "dry-run": { type: "boolean", help: "only show what would change" },
    prune: {
      type: "boolean",
      help: "remove backends, routes, prices and settings that their section does not name",
    },
    watch: { type: "boolean", help: "stay, and apply it again whenever it changes" },
  },
  async run(invocation) {
    const { words, options } = invocation;
    const path = text(options, "file") ?? needed(words, 0, "the file: -f gateway.yaml");
    if (!options.watch) return applyOnce(invocation, path);
    refuseIdle(options, ["dry-run"], "with --watch");
    return follow(invocation, path);
  },
};

const variable = (...words: string[]) =>
  words
    .join("_")
    .toUpperCase()
    .replace(/[^A-Z0-9]+/g, "_");

/** As a file has it: secrets as references, and without what is empty anyway. */
function asWritten({ secrets = [], id: _, ...entry }: Entry): Entry {
  const hidden = (secrets as string[]).map((field) => {
    const reference = { env: variable(nameOf(entry), field.replace("headers.", "")) };
    return field.startsWith("headers.")
      ? { headers: { [field.slice("headers.".length)]: reference } }
      : { [field]: reference };
  });
  const headers = Object.assign({}, ...hidden.map((each) => each.headers));
  const all: Entry = { ...entry, ...Object.assign({}, ...hidden), headers };
  const isEmpty = (value: unknown) =>
    value === null || (typeof value === "object" && Object.keys(value).length === 0);
  const keepsNull = /^monthly_/;
  return Object.fromEntries(
    Object.entries(all).filter(([field, value]) => keepsNull.test(field) || !isEmpty(value)),
  );
}

export const exportConfig: Command = {
  name: "export",
  summary: "Print the configuration for apply; secrets become names of variables; for administrators",
  examples: ["model-gateway export > gateway.yaml"],
  async run({ words, output, connection }) {
    if (words.length > 0) throw new UsageError("export takes no words; write > gateway.yaml for a file");
    const { present } = await (await connection.signedIn()).call("config.check", { configuration: {} });
    const written = Object.fromEntries(
      SECTIONS.filter((section) => present[section]!.length > 0).map((section) => [
        section,
        present[section]!.map(asWritten),
      ]),
    );
    output.result(written, () => stringify(written, { lineWidth: 0 }).trimEnd());
  },
};
