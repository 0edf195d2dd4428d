import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { endNodes, prepareWorkplace, startNode } from "@model-gateway/testing/node.ts";
import { freePort } from "@model-gateway/testing/services.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, DONE, usageChunk } from "@model-gateway/testing/upstream.ts";
import { openStage, type Stage, settleAccounts } from "../../cluster/support/stage.ts";
import type { Outcome } from "./outcome.ts";

const INSTANCES = 3;
/** Of ten streams one goes through the tunnel of a node. */
const TUNNELLED_EVERY = 10;
const PIECES = 25;
const PIECE_EVERY_MS = 200;
/** The node's engine says a word every 5 ms. */
const WORDS = 600;

class Streams {
  readonly answered: string[] = [];
  readonly broken: string[] = [];
  open = 0;
  tunnelled = 0;
  #isStopping = false;
  #lanes: Promise<void>[] = [];

  constructor(
    readonly stage: Stage,
    readonly count: number,
  ) {}

  async start(): Promise<void> {
    this.#lanes = Array.from({ length: this.count }, (_, i) => this.#lane(i));
    await until("all streams are open", () => this.open >= this.count);
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#lanes);
  }

  async #lane(number: number): Promise<void> {
    // Not all in step with each other.
    await Bun.sleep((number / this.count) * PIECES * PIECE_EVERY_MS);
    while (!this.#isStopping) await this.#one(number % TUNNELLED_EVERY === 0);
  }

  async #one(isTunnelled: boolean): Promise<void> {
    const { instances, groupKey } = this.stage;
    const content = isTunnelled ? "word ".repeat(WORDS) : "hi";
    let text = "";
    this.open++;
    try {
      const response = await fetch(`${instances[0]!.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${groupKey}`, "content-type": "application/json" },
        body: JSON.stringify({
          model: isTunnelled ? "tiny" : "m",
          stream: true,
          messages: [{ role: "user", content }],
        }),
      });
      text = await response.text();
      if (!response.ok || !text.endsWith(DONE)) throw new Error(`${response.status} ${text.slice(-300)}`);
      this.answered.push(response.headers.get("x-request-id")!);
      if (isTunnelled) this.tunnelled++;
    } catch (error) {
      const how = `${isTunnelled ? "tunnelled" : "direct"}, ${text === "" ? "refused" : "cut"}`;
      this.broken.push(`${how}: ${(error as Error).message}`);
      await Bun.sleep(PIECE_EVERY_MS);
    } finally {
      this.open--;
    }
  }
}

const tally = (names: readonly string[]): string[] =>
  [...Map.groupBy(names, (name) => name)].map(([name, all]) => `${all.length} ${name}`);

async function addNode(stage: Stage, dir: string) {
  const [first] = stage.instances;
  const weights = join(dir, "tiny.gguf");
  writeFileSync(weights, "weights");
  const workplace = prepareWorkplace({
    top: 'host = "127.0.0.2"',
    models: `[models.tiny]\npath = "${weights}"`,
  });
  const machine = { machine_name: "node", version: "1" };
  const { agent_id, token } = await first!.rpc("agents.register", machine, stage.admin);
  startNode({ gateway: first!.url, workplace, token });
  const isOnline = async () => (await first!.rpc("agents.status", { agent_id }, stage.admin)).online;
  await until("the node is online", isOnline);
  await first!.rpc("agents.deploy", { agent_id, model_id: "tiny" }, stage.admin);
  await until("the node serves", async () => (await first!.models()).includes("tiny"));
  return workplace;
}

/** Three instances on one port are ended in order and started again, one after the other, while streams run. */
export async function measureRolling(count: number): Promise<Outcome> {
  const dir = mkdtempSync(join(tmpdir(), "gateway-rolling-"));
  const SERVICE_PORT = String(await freePort());
  const stage = await openStage({ instances: INSTANCES, env: { SERVICE_PORT, SERVICE_REUSE_PORT: "true" } });
  let workplace: Awaited<ReturnType<typeof addNode>> | null = null;
  try {
    stage.upstream.answer(async (_, reply) => {
      reply.head(200, { "content-type": "text/event-stream" });
      for (let i = 0; i < PIECES; i++) {
        await reply.write(chunk({ delta: { content: "word " } }));
        await Bun.sleep(PIECE_EVERY_MS);
      }
      for (const event of [chunk({ finish_reason: "stop" }), usageChunk(), DONE]) await reply.write(event);
      await reply.end();
    });
    workplace = await addNode(stage, dir);
    const streams = new Streams(stage, count);
    await streams.start();
    const codes: number[] = [];
    const tookMs: number[] = [];
    for (const instance of stage.instances) {
      const beganMs = performance.now();
      codes.push(await instance.drain());
      tookMs.push(performance.now() - beganMs);
      await instance.start();
    }
    await streams.stop();
    await settleAccounts(stage, streams.answered);
    const { answered, tunnelled, broken } = streams;
    const drains = tookMs.map((ms) => (ms / 1_000).toFixed(1)).join(", ");
    return {
      lines: [
        `${count} streams at once: ${answered.length} came to their end, ${tunnelled} of them through a tunnel; ${broken.length} were cut`,
        `drained in ${drains} s, exit codes ${codes.join(", ")}`,
        ...tally(broken.map((message) => message.split(":")[0]!)),
        ...broken.slice(0, 5),
      ],
      isSound: broken.length === 0 && codes.every((code) => code === 0) && tunnelled > 0,
    };
  } finally {
    await endNodes();
    workplace?.remove();
    await stage.end();
    rmSync(dir, { recursive: true, force: true });
  }
}
