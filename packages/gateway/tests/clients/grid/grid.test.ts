/**
 * Every client against everything that clients need, with the clients' own settings for retries. docs/clients.md shows
 * the grid.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { bootInference, type InferenceBench } from "../../support/inference.ts";
import { agents } from "./agents.ts";
import { aiSdk } from "./ai-sdk.ts";
import { anthropic } from "./anthropic.ts";
import { CELLS, type Cell, type Client, type Door, WEATHER } from "./client.ts";
import { gemini } from "./gemini.ts";
import { langchain } from "./langchain.ts";
import { ANSWER, isLeft, model, OVERFLOW, PROMPTS } from "./model.ts";
import { ollama } from "./ollama.ts";
import { chat, responses } from "./openai.ts";
import { hasPrograms, PROGRAM_TIMEOUT_MS, programClients } from "./programs.ts";
import { tableOf } from "./table.ts";

const CLIENTS: readonly Client[] = [
  chat,
  responses,
  anthropic,
  gemini,
  ...aiSdk,
  ...langchain,
  ...agents,
  ollama,
];

let bench: InferenceBench;
beforeAll(async () => {
  // By default the contract's two routes answer an overflow with 502, which some clients try again.
  bench = await bootInference({ config: { upstreamErrors: "pass" } });
  bench.upstream.answer(model);
  // One place, so that a chat that does not give it back blocks the next one.
  await bench.addBackend({ name: "first", type: "external", url: bench.upstream.url, concurrency: 1 });
});
afterAll(() => bench.stop());

const door = (change: Partial<Door> = {}): Door => ({
  url: bench.url,
  key: bench.key,
  model: "m",
  ...change,
});

/** An access token lives for 15 minutes, and all programs together take longer on a busy machine. */
const TOKEN_MS = 10 * 60_000;
const signedIn = { token: "", untilMs: 0 };
async function token(): Promise<string> {
  if (Date.now() > signedIn.untilMs)
    Object.assign(signedIn, { token: await bench.signIn("ada"), untilMs: Date.now() + TOKEN_MS });
  return signedIn.token;
}

/** Requests to a path that have come so far, refused ones included. */
async function arrived(surface: string): Promise<number> {
  const which = { everyone: true, surface, limit: 500 };
  const { records } = await bench.rpc("requests.list", which, await token());
  return records.length;
}

/** The client fails at the first refusal, and tells its user what the gateway said. */
async function fails(
  { surface, ask, differs }: Client,
  cell: Cell,
  { at = door(), prompt = PROMPTS.ask, saying }: { at?: Door; prompt?: string; saying: RegExp },
): Promise<void> {
  const before = await arrived(surface);
  const told = await ask(at, { prompt, stream: true }).then(
    (text) => {
      throw new Error(`answered: ${text}`);
    },
    // The AI SDK keeps a refusal that is not JSON, as the contract's 401, beside its message.
    (error: Error & { responseBody?: string }) => `${error.message}\n${error.responseBody ?? ""}`,
  );
  expect(told).toMatch(differs?.[cell]?.says ?? saying);
  expect((await arrived(surface)) - before).toBe(differs?.[cell]?.requests ?? 1);
}

/** The upstream has been asked to count, and does. */
const counting = () =>
  until(
    "the answer has begun",
    () => bench.upstream.requests.some((request) => isLeft(request) && request.closedAtMs === null),
    PROGRAM_TIMEOUT_MS / 2,
  );

const GRID: Record<Cell, (client: Client) => Promise<void>> = {
  async streamed({ ask }) {
    expect(await ask(door(), { prompt: PROMPTS.ask, stream: true })).toContain(ANSWER);
    expect(bench.upstream.requests.at(-1)!.json.stream).toBe(true);
  },
  async whole({ ask }) {
    expect(await ask(door(), { prompt: PROMPTS.ask, stream: false })).toContain(ANSWER);
    expect(bench.upstream.requests.at(-1)!.json.stream ?? false).toBe(false);
  },
  async "tool round trip"({ useTool }) {
    // Programs put a few lines of their own around what a command printed.
    expect(await useTool(door(), PROMPTS.tool)).toMatch(new RegExp(`The tool said: [^]*${WEATHER}`));
  },
  overflow: (client) =>
    fails(client, "overflow", {
      prompt: PROMPTS.overflow,
      saying: new RegExp(`${OVERFLOW.context}.*${OVERFLOW.prompt}|${OVERFLOW.prompt}.*${OVERFLOW.context}`),
    }),
  "wrong key": (client) =>
    fails(client, "wrong key", {
      at: door({ key: "service-00000000-0000-4000-8000-000000000000" }),
      saying: /invalid api key/i,
    }),
  "unknown model": (client) =>
    fails(client, "unknown model", {
      at: door({ model: "nobody" }),
      saying: /No backend available for model: nobody/,
    }),
  async abort({ leave, ask }) {
    await leave(door(), PROMPTS.leave, counting);
    await until("the upstream is left", () =>
      bench.upstream.requests.filter(isLeft).every(({ closedAtMs }) => closedAtMs !== null),
    );
    expect(await ask(door(), { prompt: PROMPTS.ask, stream: true })).toContain(ANSWER);
  },
};

for (const client of CLIENTS)
  describe(client.name, () => {
    for (const cell of CELLS) if (!client.lacks?.[cell]) test(cell, () => GRID[cell](client));
  });

describe.if(hasPrograms)("coding agents, where npm run clients -- install has put them", () => {
  for (const client of programClients)
    for (const cell of CELLS)
      if (!client.lacks?.[cell])
        test(`${client.name}: ${cell}`, () => GRID[cell](client), PROGRAM_TIMEOUT_MS);
});

test("docs/clients.md shows this grid", () => {
  const guide = readFileSync(join(import.meta.dir, "../../../../../docs/clients.md"), "utf8");
  const shown = guide.split("\n").filter((line) => line.startsWith("| "));
  expect(shown.join("\n")).toBe(tableOf([...CLIENTS, ...programClients]));
});
