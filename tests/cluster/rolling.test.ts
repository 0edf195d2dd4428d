import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { freePort } from "@model-gateway/testing/services.ts";
import { canShare } from "../../packages/gateway/tests/instances/support.ts";
import { startLoad } from "./support/load.ts";
import { openStage, type Stage, settleAccounts } from "./support/stage.ts";

describe.if(canShare)("three instances on one port", () => {
  let stage: Stage;
  beforeAll(async () => {
    const SERVICE_PORT = String(await freePort());
    stage = await openStage({ instances: 3, env: { SERVICE_PORT, SERVICE_REUSE_PORT: "true" } });
  }, 60_000);
  afterAll(() => stage?.end());

  test("a rolling restart fails no request, and every one is paid once", async () => {
    const { instances, groupKey } = stage;
    const answered: string[] = [];
    const load = startLoad(8, async () => {
      const response = await instances[0]!.chat(groupKey);
      if (response.ok) answered.push(response.headers.get("x-request-id")!);
      return response;
    });
    for (const instance of instances) {
      expect(await instance.drain()).toBe(0);
      await instance.start();
    }
    await load.stop();
    expect({ statuses: [...load.statuses.keys()], failures: load.failures }).toEqual({
      statuses: [200],
      failures: [],
    });
    expect(new Set(answered).size).toBe(answered.length);
    await settleAccounts(stage, answered);
  });
});
