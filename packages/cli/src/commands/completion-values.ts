import type { Connection } from "../connection.ts";
import { callableModels } from "./backends.ts";
import { CLIENTS } from "./connect.ts";

/** A shell waits for the answer while someone holds the tab key. */
const ANSWER_WITHIN_MS = 2_000;
const VALUES_MAX = 500;

type Values = (connection: Connection) => Promise<readonly string[]> | readonly string[];

const models: Values = async (connection) => (await callableModels(connection)).map(({ id }) => id);
const keyNames: Values = async (connection) =>
  (await (await connection.signedIn()).call("keys.list"))
    .filter(({ active }) => active)
    .map(({ name, id }) => (/\s/.test(name) ? id : name));
const backendNames: Values = async (connection) =>
  connection.adminToken === null
    ? (await (await connection.signedIn()).call("backends.list")).backends.map(({ name }) => name)
    : (await connection.client.admin.backends()).backends.health.map(({ name, label }) => name ?? label);
const nodes: Values = async (connection) =>
  (await (await connection.signedIn()).call("agents.list")).map(({ name }) => name);
const groups: Values = async (connection) =>
  (await (await connection.signedIn()).call("group.list")).map(({ name, id }) =>
    /\s/.test(name) ? id : name,
  );
const groupIds: Values = async (connection) =>
  (await (await connection.signedIn()).call("group.list")).map(({ id }) => id);
const people: Values = async (connection) =>
  (await (await connection.signedIn()).call("users.list", { limit: 200 })).users.map(({ email }) => email);

/** What may follow an option. */
const OF_OPTIONS: Record<string, Values> = {
  "--model": models,
  "-m": models,
  "--node": nodes,
  "--group": groupIds,
  "--by": () => ["model", "backend", "ref", "day"],
  "--role": () => ["admin", "member"],
  "--outcome": () => ["ok", "refused", "failed", "left"],
};

/** What may follow a command and its action, by position. */
const OF_ACTIONS: Record<string, readonly (Values | null)[]> = {
  "connect ": [() => Object.keys(CLIENTS)],
  "keys revoke": [keyNames],
  "backends remove": [backendNames],
  "backends test": [backendNames],
  "backends edit": [backendNames],
  "backends disable": [backendNames],
  "backends enable": [backendNames],
  "agents stop": [nodes, models],
  "agents log": [nodes, models],
  "agents show": [nodes],
  "agents drain": [nodes],
  "agents undrain": [nodes],
  "agents remove": [nodes],
  "groups members": [groups],
  "groups add": [groups],
  "groups remove": [groups],
  "groups invite": [groups],
  "groups delete": [groups],
  ...Object.fromEntries(
    ["enable", "disable", "promote", "demote", "confirm", "tier", "reset"].map((action) => [
      `users ${action}`,
      [people],
    ]),
  ),
};

/** Ids and models that could stand where the cursor is: after `words`, of which the last is being typed. */
export async function valuesFor(
  words: readonly string[],
  connection: Connection,
): Promise<readonly string[]> {
  const option = OF_OPTIONS[words.at(-2) ?? ""];
  const places = words.filter((word, i) => i === words.length - 1 || !word.startsWith("-"));
  const [command = "", action = ""] = places;
  const positional =
    OF_ACTIONS[`${command} ${action}`]?.[places.length - 3] ??
    (places.length === 2 ? OF_ACTIONS[`${command} `]?.[0] : undefined);
  const values = option ?? positional;
  if (!values) return [];
  try {
    const late = Bun.sleep(ANSWER_WITHIN_MS).then((): readonly string[] => []);
    const known = await Promise.race([values(connection), late]);
    // A line is a word to the shell; what it would take apart, or act on, is not offered.
    return known.filter((value) => /^[\w.:@/+-]+$/.test(value)).slice(0, VALUES_MAX);
  } catch {
    // Not signed in, or the service is away: there is nothing to offer.
    return [];
  }
}
