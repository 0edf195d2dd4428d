import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { agentScript, Refusal } from "@model-gateway/testing/vendors/model.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";
import { type Agent, chatAgent, geminiAgent, messagesAgent, responsesAgent } from "./agents.ts";
import { DIALECTS, modelOf, startVendors, type Vendors } from "./vendors.ts";

/** A vendor is away for some turns of a session with tools and thinking: another one goes on, in another dialect, and gives it back. */
const AGENTS: Record<string, Agent> = {
  messages: messagesAgent,
  responses: responsesAgent,
  gemini: geminiAgent,
  chat: chatAgent,
};
/** Turns of the session that the first vendor does not answer. */
const AWAY = [3, 4, 6];

let bench: InferenceBench;
let vendors: Vendors;
beforeAll(async () => {
  bench = await bootInference();
  vendors = await startVendors(bench);
});
afterAll(async () => {
  vendors.stop();
  await bench.stop();
});

describe.each(Object.keys(AGENTS))("a client of %s", (name) => {
  for (const first of DIALECTS)
    for (const second of DIALECTS)
      if (first !== second)
        test(`${first} is away at times, and ${second} goes on`, async () => {
          const route = `${name}-${first}-${second}`;
          const targets = [first, second].map((dialect, order) => ({
            ...{ model: modelOf(dialect), backend: dialect, order: order + 1 },
          }));
          await bench.rpc("routes.set", { name: route, targets }, bench.token);
          vendors[second].script = agentScript();
          vendors[first].script = (asked) => {
            if (AWAY.includes(asked.step)) throw new Refusal(529, { error: { message: "Overloaded" } });
            return agentScript()(asked);
          };
          const before = vendors[second].requests.length;
          const { url, key } = bench;
          const told = await AGENTS[name]!({ url, key, model: route, isStream: true, repeated: 1 });
          expect(told).toMatchObject({ turns: 10, text: "Done after 10 turns." });
          expect(vendors[second].requests.length - before).toBe(AWAY.length);
        });
});
