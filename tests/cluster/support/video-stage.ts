import { type DatabaseName, freshDatabase, openDatabase } from "@model-gateway/testing/databases.ts";
import { until } from "@model-gateway/testing/until.ts";
import { verifyLedger } from "../../../packages/gateway/src/rooms/ledger/index.ts";
import type { Database } from "../../../packages/gateway/src/storage/contract.ts";
import { ADMIN_TOKEN, Instance } from "./cluster.ts";
import { HeldVideos } from "./held-videos.ts";

export const PRICE_USD = 0.25;
const PRICE_POINTS = 25;
const POOL_POINTS = 10_000;
/** The model says which of the two APIs makes the clip. */
export const MODELS = { minimax: "clip", dashscope: "wan" } as const;
const FINAL = new Set(["done", "failed", "cancelled"]);
/** A killed process's leases run out first, and then many jobs share the machine. */
const LOG_SHOWN_CHARS = 4_000;
const FINISH_WITHIN_MS = 90_000;

interface JobFacts {
  id: string;
  status: string;
  cost: number;
  settled: boolean;
}

/** One real process with a database of its own, two held video APIs, and a group whose pool pays. */
export class VideoStage {
  readonly videos = new HeldVideos();
  readonly jobs = new Map<string, string>();
  readonly #cleanups: (() => unknown)[] = [() => this.videos.stop()];
  instance!: Instance;
  db!: Database;
  #token = "";
  #key = "";
  #groupId = "";

  /** Runs the test on a stage of its own; a failure says how the jobs stood and what the process had logged. */
  static async with(kind: DatabaseName, work: (stage: VideoStage) => Promise<void>): Promise<void> {
    const stage = new VideoStage();
    try {
      await stage.#open(kind);
      await work(stage);
    } catch (error) {
      const jobs = await stage.#facts().catch(() => []);
      console.error(
        JSON.stringify({ prompts: [...stage.jobs], jobs }),
        stage.instance?.log.slice(-LOG_SHOWN_CHARS),
      );
      throw error;
    } finally {
      await stage.#end();
    }
  }

  #facts(): Promise<JobFacts[]> {
    return this.db.all<JobFacts>("SELECT id, status, cost, settled, next_step_at FROM video_jobs");
  }

  async #open(kind: DatabaseName): Promise<void> {
    const { options, drop } = await freshDatabase(kind);
    this.#cleanups.push(drop);
    const env = { SERVICE_DRAIN_GRACE_MS: "0", SERVICE_DRAIN_TIMEOUT_MS: "1000" };
    const instance = new Instance({ databaseUrl: options.databaseUrl, redisUrl: null, env });
    this.instance = instance;
    this.#cleanups.push(() => instance.remove());
    await instance.start();
    this.db = await openDatabase({ ...options, dataDir: instance.dataDir });
    this.#cleanups.push(() => this.db.close());
    await this.#populate();
  }

  async #populate(): Promise<void> {
    const { instance, videos } = this;
    this.#token = await instance.signUp("ada");
    await instance.rpc(
      "billing.plan.set",
      { user_email: "ada@example.com", tier: "enterprise" },
      ADMIN_TOKEN,
    );
    for (const [type, model] of Object.entries(MODELS)) {
      const price = { model, mode: "per_call", base_price: PRICE_USD };
      await instance.rpc("billing.video.pricing.set", price, ADMIN_TOKEN);
      const backend = { type, name: type, url: videos.url, api_key: "sk", models: [model] };
      await instance.admin("POST", "/api/admin/backends", backend);
    }
    const { id } = await instance.rpc("group.create", { name: "film" }, this.#token);
    this.#groupId = id;
    await instance.rpc("group.credits.topup", { group_id: id, points: POOL_POINTS }, this.#token);
    const key = await instance.rpc("keys.create", { name: "k", group_id: id }, this.#token);
    this.#key = key.key;
    await this.#routable();
  }

  #routable(): Promise<void> {
    return until("both models are routable", async () => {
      const models = await this.instance.models();
      return Object.values(MODELS).every((model) => models.includes(model));
    });
  }

  /** Creates the job of this prompt over REST, paid for by the group's pool. */
  async create(prompt: string, model: string = MODELS.minimax): Promise<void> {
    const response = await fetch(`${this.instance.url}/v1/video/generations`, {
      method: "POST",
      headers: { authorization: `Bearer ${this.#key}`, "content-type": "application/json" },
      body: JSON.stringify({ model, prompt }),
    });
    const { id, status } = (await response.json()) as { id: string; status: string };
    if (status !== "queued") throw new Error(`${prompt}: ${response.status}`);
    this.jobs.set(prompt, id);
  }

  async cancel(prompt: string): Promise<void> {
    await this.instance.rpc("video.cancel", { job_id: this.jobs.get(prompt)! }, this.#token);
  }

  /** What callers are told about the job. */
  async status(prompt: string): Promise<string> {
    return (await this.view(prompt)).status;
  }

  view(prompt: string): Promise<{ status: string; cost: number; error: string | null; result: unknown }> {
    return this.instance.rpc("video.get", { job_id: this.jobs.get(prompt)! }, this.#token);
  }

  untilStatus(prompt: string, status: string): Promise<void> {
    return until(`${prompt} is ${status}`, async () => (await this.status(prompt)) === status);
  }

  async isSettled(prompt: string): Promise<boolean> {
    const id = this.jobs.get(prompt)!;
    return Boolean(
      (await this.db.get<JobFacts>("SELECT settled FROM video_jobs WHERE id = $1", [id]))?.settled,
    );
  }

  async hasRow(prompt: string): Promise<boolean> {
    const id = this.jobs.get(prompt)!;
    return (await this.db.get("SELECT id FROM usage_records WHERE id = $1", [id])) !== null;
  }

  /** Refuses to note that jobs with this word in their prompt are settled; the returned function ends that. */
  async refuseSettled(word: string): Promise<() => Promise<void>> {
    const head = "CREATE TRIGGER refuse_settled BEFORE UPDATE ON video_jobs";
    const condition = `NEW.settled AND NEW.request LIKE '%${word}%'`;
    if (this.db.dialect === "sqlite") {
      await this.db.run(`${head} WHEN ${condition} BEGIN SELECT RAISE(ABORT, 'refused'); END`);
      return async () => void (await this.db.run("DROP TRIGGER refuse_settled"));
    }
    await this.db.run(
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN RAISE EXCEPTION 'refused'; END $body$",
    );
    await this.db.run(`${head} FOR EACH ROW WHEN (${condition}) EXECUTE FUNCTION refuse()`);
    return async () => void (await this.db.run("DROP TRIGGER refuse_settled ON video_jobs"));
  }

  /** Takes the usage table away, so that rows stay in the journal; the returned function brings it back. */
  async hideUsage(): Promise<() => Promise<void>> {
    await this.db.run("ALTER TABLE requests RENAME TO requests_hidden");
    return async () => void (await this.db.run("ALTER TABLE requests_hidden RENAME TO requests"));
  }

  /** Starts the process again on the same data. */
  async restart(): Promise<void> {
    await this.instance.start();
    await this.#routable();
  }

  /** Waits until nothing is left to do for any job. */
  async finish(): Promise<void> {
    const unfinished = async () => {
      const rows = await this.#facts();
      const usage = new Set(
        (await this.db.all<{ id: string }>("SELECT id FROM usage_records")).map(({ id }) => id),
      );
      return rows.some(
        ({ id, status, settled }) => !settled || !FINAL.has(status) || (status === "done" && !usage.has(id)),
      );
    };
    await until("every job is final", async () => !(await unfinished()), FINISH_WITHIN_MS);
  }

  /** What every prompt's job came to. */
  async outcomes(): Promise<Record<string, { status: string; submits: number }>> {
    const entries = [...this.jobs.keys()].map(async (prompt) => {
      const { status } = await this.view(prompt);
      return [prompt, { status, submits: this.videos.count("submit", prompt) }] as const;
    });
    return Object.fromEntries(await Promise.all(entries));
  }

  /** Throws unless the books say: each done job once at its price, and nothing else. */
  async checkBooks(): Promise<void> {
    const facts = {
      done: [] as string[],
      wrongCost: [] as string[],
      rows: await this.db.all<{ id: string; cost: number; points: number }>(
        "SELECT id, cost, points FROM usage_records",
      ),
      settlements: (
        await this.db.all<{ id: string }>("SELECT id FROM ledger_movements WHERE kind = 'settlement'")
      ).map(({ id }) => id.replace("request:", "")),
    };
    for (const [prompt, id] of this.jobs) {
      const { status, cost } = await this.view(prompt);
      if (status === "done") facts.done.push(id);
      if (cost !== (status === "done" ? PRICE_USD : 0)) facts.wrongCost.push(prompt);
    }
    const sorted = (ids: readonly string[]) => [...ids].sort().join(" ");
    const { balance } = await this.instance.rpc<{ balance: number }>(
      "group.credits.balance",
      { group_id: this.#groupId },
      this.#token,
    );
    const { problems } = await verifyLedger(this.db);
    const found = [
      ...facts.wrongCost.map((prompt) => `${prompt} shows a wrong cost`),
      ...problems.map(({ message }) => message),
      sorted(facts.rows.map(({ id }) => id)) !== sorted(facts.done) && "usage rows and done jobs differ",
      sorted(facts.settlements) !== sorted(facts.done) && "settlements and done jobs differ",
      facts.rows.some((row) => row.cost !== PRICE_USD || Number(row.points) !== PRICE_POINTS) &&
        "a row has another price",
      balance !== POOL_POINTS - facts.done.length * PRICE_POINTS &&
        `the pool has ${balance} after ${facts.done.length} clips`,
    ].filter(Boolean);
    if (found.length > 0) throw new Error(found.join("; "));
  }

  async #end(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).reverse()) await cleanup();
  }
}
