/** Two real workers, a connection for each request: what one shows, the other removes, and nothing else. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { ADMIN_TOKEN } from "./support/cluster.ts";
import { openWorkers, type WorkersStage } from "./support/workers.ts";

const PATIENCE_MS = 120_000;
const ROUNDS = 12;

describe.if(process.platform === "linux")("indexes of backends with --workers 2", () => {
  let stage: WorkersStage;
  beforeAll(async () => {
    stage = await openWorkers(2);
  }, PATIENCE_MS);
  afterAll(() => stage?.end());

  const send = (method: string, body?: unknown) =>
    fetch(`${stage.service.url}/api/admin/backends`, {
      method,
      headers: {
        authorization: `Bearer ${ADMIN_TOKEN}`,
        "content-type": "application/json",
        connection: "close",
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      keepalive: false,
    } as RequestInit);
  const register = async (name: string): Promise<void> => {
    const answer = await send("POST", { name, type: "external", url: stage.upstream.url });
    expect(answer.status).toBe(200);
    await answer.text();
  };
  const listed = async (): Promise<Map<string, number>> => {
    const { backends } = (await (await send("GET")).json()) as {
      backends: { health: { label: string; name: string }[] };
    };
    return new Map(
      backends.health.map(({ label, name }) => [name, Number(/^backend_(\d+):/.exec(label)![1])]),
    );
  };
  const remove = async (index: number): Promise<number> => {
    const answer = await send("DELETE", { index });
    await answer.text();
    return answer.status;
  };
  /** The list, once so many connections that each worker has some are told the same. */
  const agreed = async (): Promise<Map<string, number>> => {
    let list = new Map<string, number>();
    await until("all connections are told the same", async () => {
      const lists = await Promise.all(Array.from({ length: 16 }, listed));
      list = lists[0]!;
      return lists.every((each) => Bun.deepEquals([...each], [...list]));
    });
    return list;
  };

  test(
    "registered at once, they are removed one by one as they were shown",
    async () => {
      const names = Array.from({ length: 8 }, (_, at) => `p${at}`);
      await Promise.all(names.map(register));
      const shown = await agreed();
      expect([...shown.keys()].toSorted()).toEqual([...names, "up"].toSorted());
      for (const name of names) {
        expect(await remove(shown.get(name)!)).toBe(200);
        const left = await agreed();
        expect(left.has(name)).toBe(false);
        for (const [other, index] of left) expect([other, index]).toEqual([other, shown.get(other)!]);
      }
    },
    PATIENCE_MS,
  );

  test(
    "while others register and remove, a DELETE removes what a GET showed, or nothing",
    async () => {
      const registered = new Set<string>();
      const removed = new Map<string, number>();
      let number = 0;
      const add = async () => {
        const name = `q${number++}`;
        registered.add(name);
        await register(name);
      };
      /** Takes any that it is shown, often the last, which others take too. */
      const take = async (choose: (names: string[]) => string | undefined) => {
        const list = await listed();
        const name = choose([...list.keys()].filter((each) => each !== "up"));
        if (name === undefined) return;
        const status = await remove(list.get(name)!);
        expect([200, 404]).toContain(status);
        if (status === 200) removed.set(name, (removed.get(name) ?? 0) + 1);
      };
      await Promise.all(Array.from({ length: 4 }, add));
      const lanes: (() => Promise<void>)[] = [
        add,
        add,
        () => take((names) => names.at(-1)),
        () => take((names) => names.at(-1)),
        () => take((names) => names[Math.floor(names.length / 2)]),
      ];
      await Promise.all(
        lanes.map(async (lane) => {
          for (let round = 0; round < ROUNDS; round++) await lane();
        }),
      );
      const left = await agreed();
      const expected = [...registered].filter((name) => !removed.has(name));
      expect([...left.keys()].toSorted()).toEqual([...expected, "up"].toSorted());
      expect([...removed.values()].filter((times) => times > 1)).toEqual([]);
      expect(removed.size).toBeGreaterThan(ROUNDS);
      expect(new Set(left.values()).size).toBe(left.size);

      const [victim] = stage.workers();
      process.kill(victim!, "SIGKILL");
      await stage.whole([victim!]);
      expect([...(await agreed())]).toEqual([...left]);
    },
    PATIENCE_MS,
  );
});
