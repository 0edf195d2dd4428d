/** Plays MiniWoB++ where a checkout of it is named: MINIWOB_DIR=<checkout>/miniwob/html. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { McpClient } from "../mcp-client.ts";
import { playEpisode, serveMiniwob, taskNames } from "./run.ts";
import { tasks } from "./tasks.ts";

const dir = process.env.MINIWOB_DIR ?? "";
const seeds = Array.from({ length: 6 }, (_, i) => `seed-${i + 1}`);

/** What no strategy can be sure of, with the reason. */
const unsure: Record<string, string> = {
  "hover-shape": "its page never gives a reward",
  "tic-tac-toe": "the other side may play well",
};

describe.skipIf(dir === "")("MiniWoB++ by snapshots (MINIWOB_DIR)", () => {
  let client: McpClient;
  let site: ReturnType<typeof serveMiniwob>;
  beforeAll(async () => {
    site = serveMiniwob(dir);
    client = new McpClient();
    await client.initialize();
  });
  afterAll(async () => {
    await client?.end();
    await site?.stop();
  });

  for (const task of dir === "" ? [] : taskNames(dir))
    test.skipIf(task in unsure)(
      `${task}${task in unsure ? `: ${unsure[task]}` : ""}`,
      async () => {
        for (const seed of seeds) {
          const { reward, problem } = await playEpisode(client, site.url, task, seed);
          expect({ seed, isSolved: (reward ?? -1) > 0, problem }).toEqual({
            seed,
            isSolved: true,
            problem: undefined,
          });
        }
      },
      200_000,
    );

  test("there is a strategy for every task", () => {
    expect(taskNames(dir).filter((task) => !(task in tasks))).toEqual([]);
  });
});
