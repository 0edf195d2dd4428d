import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Line } from "@model-gateway/testing/line.ts";
import { endNodes, prepareWorkplace, startNode } from "@model-gateway/testing/node.ts";
import { until } from "@model-gateway/testing/until.ts";
import { chunk, DONE, usageChunk } from "@model-gateway/testing/upstream.ts";
import type { Instance } from "../../cluster/support/cluster.ts";
import { openStage, type Stage, settleAccounts } from "../../cluster/support/stage.ts";
import type { Outcome } from "./outcome.ts";

const INSTANCES = 3;
/** Of ten streams one goes through the tunnel of a node. */
const TUNNELLED_EVERY = 10;
const PIECES = 25;
const PIECE_EVERY_MS = 200;
/** A load balancer asks who is ready more often than an instance gives it grace. */
const ASKED_EVERY_MS = 100;
const GRACE_MS = 2_000;
/** The node's engine says a word every 5 ms. */
const WORDS = 600;

/** What a load balancer does: asks who is ready, several times in the grace that an instance gives it. */
class Balancer {
  readonly #ready = new Set<Instance>();
  readonly #ending = new AbortController();
  readonly line: Line;

  private constructor(
    readonly instances: readonly Instance[],
    line: Line,
  ) {
    this.line = line;
    for (const instance of instances) void this.#watch(instance);
  }

  /** Its line leads a node to an instance that is ready. */
  static async open(instances: readonly Instance[]): Promise<Balancer> {
    const balancer = new Balancer(instances, await Line.open({ targetPort: portOf(instances[0]!) }));
    await until("all are ready", () => balancer.#ready.size === instances.length);
    return balancer;
  }

  async #watch(instance: Instance): Promise<void> {
    while (!this.#ending.signal.aborted) {
      const isReady = await fetch(`${instance.url}/readyz`, { keepalive: false }).then(
        ({ ok }) => ok,
        () => false,
      );
      if (isReady) this.#ready.add(instance);
      else this.#ready.delete(instance);
      const [first] = this.#ready;
      if (first) this.line.targetPort = portOf(first);
      await Bun.sleep(ASKED_EVERY_MS);
    }
  }

  pick(number: number): Instance {
    const ready = [...this.#ready];
    return ready[number % ready.length] ?? this.instances[0]!;
  }

  close(): void {
    this.#ending.abort();
    this.line.close();
  }
}

const portOf = ({ url }: Instance) => Number(new URL(url).port);

class Streams {
  readonly answered: string[] = [];
  readonly broken: string[] = [];
  open = 0;
  tunnelled = 0;
  #begun = 0;
  #isStopping = false;
  #lanes: Promise<void>[] = [];

  constructor(
    readonly balancer: Balancer,
    readonly key: string,
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
    const content = isTunnelled ? "word ".repeat(WORDS) : "hi";
    let text = "";
    this.open++;
    try {
      const response = await fetch(`${this.balancer.pick(this.#begun++).url}/v1/chat/completions`, {
        method: "POST",
        keepalive: false,
        headers: { authorization: `Bearer ${this.key}`, "content-type": "application/json" },
        body: JSON.stringify({
          model: isTunnelled ? "tiny" : "m",
          stream: true,
          messages: [{ role: "user", content }],
        }),
      });
      text = await response.text();
      if (!response.ok || !text.endsWith(DONE))
        throw new Error(/"message":"[^"]*/.exec(text.slice(-500))?.[0]);
      this.answered.push(response.headers.get("x-request-id")!);
      if (isTunnelled) this.tunnelled++;
    } catch (error) {
      const how = `${isTunnelled ? "tunnelled" : "direct"}, ${text.startsWith("data:") ? "cut" : "refused"}`;
      this.broken.push(`${how}: ${(error as Error).message}`);
      await Bun.sleep(PIECE_EVERY_MS);
    } finally {
      this.open--;
    }
  }
}

const tally = (names: readonly string[]): string[] =>
  [...Map.groupBy(names, (name) => name)].map(([name, all]) => `${all.length} ${name}`);

async function addNode(stage: Stage, gateway: string, dir: string) {
  const [first] = stage.instances;
  const weights = join(dir, "tiny.gguf");
  writeFileSync(weights, "weights");
  const workplace = prepareWorkplace({
    top: 'host = "127.0.0.2"',
    models: `[models.tiny]\npath = "${weights}"`,
  });
  const machine = { machine_name: "node", version: "1" };
  const { agent_id, token } = await first!.rpc("agents.register", machine, stage.admin);
  startNode({ gateway, workplace, token });
  const isOnline = async () => (await first!.rpc("agents.status", { agent_id }, stage.admin)).online;
  await until("the node is online", isOnline);
  await first!.rpc("agents.deploy", { agent_id, model_id: "tiny" }, stage.admin);
  await until("the node serves", async () => (await first!.models()).includes("tiny"));
  return workplace;
}

/** Three instances behind a load balancer are ended in order and started again, one after the other, while streams run. */
export async function measureRolling(count: number): Promise<Outcome> {
  const dir = mkdtempSync(join(tmpdir(), "gateway-rolling-"));
  const stage = await openStage({ instances: INSTANCES, env: { SERVICE_DRAIN_GRACE_MS: String(GRACE_MS) } });
  const balancer = await Balancer.open(stage.instances);
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
    workplace = await addNode(stage, `http://127.0.0.1:${balancer.line.port}`, dir);
    const streams = new Streams(balancer, stage.groupKey, count);
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
        ...tally(broken),
      ],
      isSound: broken.length === 0 && codes.every((code) => code === 0) && tunnelled > 0,
    };
  } finally {
    await endNodes();
    balancer.close();
    workplace?.remove();
    await stage.end();
    rmSync(dir, { recursive: true, force: true });
  }
}
