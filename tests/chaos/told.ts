import { until } from "@model-gateway/testing/until.ts";
import { ADMIN_TOKEN } from "../cluster/support/cluster.ts";
import { type Plan, planOf } from "./plan.ts";
import type { World } from "./world.ts";

/** What connections were told about one thing, each once it was calm: all should be told the same. */
export interface Told {
  what: string;
  answers: string[];
}

/** Workers share an address, so several connections to each. */
const CONNECTIONS = 8;
/** What was missed while something was away is caught up by then. */
const SAME_WITHIN_MS = 30_000;
const CONVERSATIONS = 3;

interface Health {
  name: string;
  index: number;
  state: string;
  circuit: { state: string };
}

/** Asks on a connection of its own. */
async function ask(url: string, path: string, bearer: string, body?: object): Promise<Response> {
  return fetch(`${url}${path}`, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
    keepalive: false,
  });
}

const rpc = (method: string, params: object = {}) => ({ jsonrpc: "2.0", id: 1, method, params });

/** Indexes, circuits and figures, as each connection shows them; and where conversations are answered. */
export async function readTold(world: World): Promise<Told[]> {
  const urls = world.addresses.flatMap(({ url }) => Array<string>(CONNECTIONS).fill(url));
  const health = async (url: string): Promise<Health[]> => {
    const { backends } = await (await ask(url, "/api/admin/backends", ADMIN_TOKEN)).json();
    return backends.health;
  };
  const questions: Record<string, (url: string) => Promise<string>> = {
    indexes: async (url) => (await health(url)).map(({ name, index }) => `${index} ${name}`).join(),
    circuits: async (url) =>
      (await health(url)).map(({ name, state, circuit }) => `${name} ${state} ${circuit.state}`).join(),
    requests: async (url) => {
      const answer = await ask(url, "/api/rpc", ADMIN_TOKEN, rpc("system.status"));
      return String((await answer.json()).result.requests_total);
    },
  };
  const told: Told[] = [];
  for (const [what, question] of Object.entries(questions)) {
    let answers: string[] = [];
    const areSame = async () => {
      answers = await Promise.all(urls.map((url) => question(url).catch(String)));
      return new Set(answers).size === 1;
    };
    await until(`all are told the same ${what}`, areSame, SAME_WITHIN_MS).catch(() => {});
    told.push({ what, answers });
  }
  for (let n = 0; n < CONVERSATIONS; n++) told.push(await turnsOf(world, urls));
  return told;
}

/** One conversation, a turn on each connection: the backend of each. */
async function turnsOf(world: World, urls: readonly string[]): Promise<Told> {
  const { seed, temper } = world.options;
  let op = 1_000_000;
  const isSimple = ({ behaviour, stream, gapMs }: Plan) => behaviour === "answers" && !stream && gapMs === 0;
  while (!isSimple(planOf(seed, op, temper))) op++;
  const { id } = await world.instances[0]!.rpc("conversations.create", {}, await world.signIn());
  const answers: string[] = [];
  for (const url of urls) {
    const messages = [{ role: "user", content: `op-${op}` }];
    const body = { model: "m", conversation_id: id, messages };
    const answer = await ask(url, "/v1/chat/completions", world.keys.plan, body);
    await answer.text();
    answers.push(answer.headers.get("x-service-backend") ?? `status ${answer.status}`);
  }
  return { what: `the backend of conversation ${id}`, answers };
}
