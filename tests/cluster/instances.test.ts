import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { minimax, startMinimax, type VideoUpstream } from "@model-gateway/testing/video.ts";
import { dialRaw, serveTunnel } from "../../packages/gateway/tests/agents/support.ts";
import { canShare } from "../../packages/gateway/tests/instances/support.ts";
import type { Instance } from "./support/cluster.ts";
import { startLoad } from "./support/load.ts";
import { openStage, type Stage, settleAccounts } from "./support/stage.ts";

/** How soon a revocation must hold everywhere on a machine that does other things too; usual are 5 ms. */
const REVOKED_WITHIN_MS = 1_000;

describe.if(canShare)("three instances", () => {
  let stage: Stage;
  let a: Instance;
  let b: Instance;
  let c: Instance;
  let videos: VideoUpstream;
  beforeAll(async () => {
    stage = await openStage({ instances: 3 });
    [a, b, c] = stage.instances as [Instance, Instance, Instance];
    videos = startMinimax();
  }, 60_000);
  afterAll(async () => {
    await stage?.end();
    videos?.stop();
  });

  test("a subscriber on A hears the chat that runs on B with the model of a node that C holds", async () => {
    const { admin } = stage;
    const machine = { machine_name: "node", version: "1" };
    const { agent_id, token } = await a.rpc("agents.register", machine, admin);
    const node = await dialRaw(c, token);
    serveTunnel(node, { baseUrl: stage.upstream.url, apiKey: null });
    await node.hello();
    await until(
      "A knows that it is online",
      async () => (await a.rpc("agents.status", { agent_id }, admin)).online,
    );
    await a.rpc("agents.deploy", { agent_id, model_id: "tiny" }, admin);
    await node.call("agent.heartbeat", { gpus: [], models: [{ model_id: "tiny", port: 20_000 }] });
    await until("B routes to the node", async () => (await b.models()).includes("tiny"));
    const turn = { model: "tiny", messages: [{ role: "user", content: "one two three" }] };
    const { stream_id } = await b.rpc("chat.send", turn, admin);
    const events = await fetch(`${a.url}/api/rpc/events?session=${stream_id}`);
    let text = "";
    for await (const chunk of events.body as unknown as AsyncIterable<Uint8Array>) {
      text += new TextDecoder().decode(chunk);
      if (text.includes('"done":true')) break;
    }
    const said = [...text.matchAll(/^data: (.*)$/gm)].map((match) => JSON.parse(match[1]!).params.content);
    expect(said.join("")).toBe("one two three");
    node.socket.close();
  });

  test("a key revoked on A is refused on B and C at once", async () => {
    const tookMs: number[] = [];
    for (let round = 0; round < 5; round++) {
      const { id, key } = await a.rpc("keys.create", { name: `k${round}` }, stage.admin);
      for (const instance of [b, c]) expect((await instance.chat(key)).status).toBe(200);
      await a.rpc("keys.revoke", { key_id: id }, stage.admin);
      const revokedMs = performance.now();
      for (const instance of [b, c])
        await until("the key is refused", async () => (await instance.chat(key)).status === 401);
      tookMs.push(performance.now() - revokedMs);
    }
    // Most of the time: now and then a busy machine lets one wait.
    expect(tookMs.toSorted((x, y) => x - y)[2]).toBeLessThan(REVOKED_WITHIN_MS);
  });

  test("a key's limit holds exactly over all of them", async () => {
    const free = await a.signUp("eve");
    const { key } = await b.rpc("keys.create", { name: "k" }, free);
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, i) => stage.instances[i % 3]!.chat(key)),
    );
    const statuses = answers.map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(50);
  });

  test("kill -9 of one: no row and no job is lost, and clients of the others notice nothing", async () => {
    await a.admin("POST", "/api/admin/backends", {
      type: "minimax",
      name: "clips",
      url: videos.url,
      api_key: "sk",
      models: ["clip"],
    });
    for (const instance of [a, b, c])
      await until("clips are routable", async () => (await instance.models()).includes("clip"));
    videos.script = [minimax.status("Processing")];
    const { job_id } = await c.rpc("video.create", { model: "clip", prompt: "a boat" }, stage.admin);
    await until("the clip is submitted", () => videos.submissions.length === 1);

    const answered: string[] = [];
    const ask = async (instance: Instance) => {
      const response = await instance.chat(stage.groupKey);
      if (response.ok) answered.push(response.headers.get("x-request-id")!);
      return response;
    };
    const others = startLoad(4, (n) => ask(n % 2 ? a : b));
    const doomed = startLoad(2, () => ask(c));
    await until("load on all", () => others.sent > 60 && doomed.sent > 30);
    await c.kill();
    await doomed.stop();
    const before = others.sent;
    await until("the others go on", () => others.sent > before + 60);
    await c.start();
    await others.stop();
    expect({ statuses: [...others.statuses.keys()], failures: others.failures }).toEqual({
      statuses: [200],
      failures: [],
    });
    expect(doomed.statuses.get(200)).toBeGreaterThan(20);
    await settleAccounts(stage, answered);

    videos.script = [minimax.success];
    await until(
      "the clip is done",
      async () => (await b.rpc("video.get", { job_id }, stage.admin)).status === "done",
    );
    expect(videos.submissions).toHaveLength(1);
    await settleAccounts(stage, [job_id]);
  });
});
