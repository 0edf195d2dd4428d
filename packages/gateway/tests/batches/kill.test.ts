import { expect, test } from "bun:test";
import { join } from "node:path";
import { freshDatabase, kinds } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { completion, startUpstream } from "@model-gateway/testing/upstream.ts";
import OpenAI, { toFile } from "openai";

const MAIN = join(import.meta.dir, "../../src/main.ts");
const LINES = 100;

/** The service as a process of its own, which can be killed. */
async function serve({ dataDir, databaseUrl }: { dataDir: string; databaseUrl: string | null }) {
  const child = Bun.spawn([process.execPath, MAIN], {
    env: {
      PATH: process.env.PATH!,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: dataDir,
      SERVICE_ADMIN_TOKEN: ADMIN_TOKEN,
      SERVICE_REGISTRATION_OPEN: "true",
      SERVICE_LOG_LEVEL: "error",
      SERVICE_API_RATE_LIMIT_RPM: "100000",
      SERVICE_WARM_UP: "0",
      ...(databaseUrl && { SERVICE_DATABASE_URL: databaseUrl }),
    },
    stdout: "pipe",
    stderr: "inherit",
  });
  let text = "";
  for await (const chunk of child.stdout) {
    text += Buffer.from(chunk).toString();
    const url = /listening on (http:\S+)/.exec(text)?.[1];
    if (url) return { child, url };
  }
  throw new Error(`it does not serve: ${text}`);
}

/** Side by side, because most of it is waiting for processes to start. */
test(
  "kill -9 in the middle of a batch loses no line, sends none twice, and all that was sent is on the books",
  async () => void (await Promise.all(kinds.map(killAndLook))),
  { timeout: 120_000 },
);

async function killAndLook(kind: (typeof kinds)[number]): Promise<void> {
  const { options, drop } = await freshDatabase(kind);
  const upstream = startUpstream();
  let answered = 0;
  let hasAnswered = () => {};
  const sent: string[] = [];
  upstream.answer(async ({ json }, reply) => {
    sent.push(json.messages[0].content);
    answered++;
    hasAnswered();
    await Bun.sleep(10);
    await reply.json(completion("ok"));
  });
  let { child, url } = await serve(options);
  const rpc = async (method: string, params: unknown, bearer: string) => {
    const headers = { "content-type": "application/json", authorization: `Bearer ${bearer}` };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    const answer = await (await fetch(`${url}/api/rpc`, { method: "POST", headers, body })).json();
    // biome-ignore lint/suspicious/noExplicitAny: tests look into results freely
    return (answer as { result: any }).result;
  };
  try {
    const account = { email: "ada@example.com", password: "correct horse battery", name: "ada" };
    const { access_token: token } = await rpc("auth.register", account, "");
    await rpc("billing.plan.set", { user_email: account.email, tier: "enterprise" }, ADMIN_TOKEN);
    const { key } = await rpc("keys.create", { name: "k" }, token);
    const backend = { name: "b", type: "external", url: upstream.url, batches: true };
    await fetch(`${url}/api/admin/backends`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify(backend),
    });
    const client = () => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 5 });
    await until("the backend serves", async () =>
      (await client().models.list()).data.some(({ id }) => id === "m"),
    );
    const names = Array.from({ length: LINES }, (_, index) => `line ${index}`);
    const lines = names.map((custom_id) => {
      const body = { model: "m", max_tokens: 20, messages: [{ role: "user", content: custom_id }] };
      return JSON.stringify({ custom_id, method: "POST", url: "/v1/chat/completions", body });
    });
    const file = await client().files.create({
      file: await toFile(Buffer.from(lines.join("\n")), "in.jsonl"),
      purpose: "batch",
    });
    const { id } = await client().batches.create({
      ...{ input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" },
    });
    await new Promise<void>((resolve) => {
      hasAnswered = () => answered >= 20 && resolve();
    });
    // At once, or while answers are on their way into the database.
    await Bun.sleep(kind === "sqlite" ? 0 : 5);
    child.kill("SIGKILL");
    await child.exited;
    ({ child, url } = await serve(options));
    let batch = await client().batches.retrieve(id);
    await until("the batch is complete", async () => {
      batch = await client().batches.retrieve(id);
      return batch.status === "completed";
    });
    // biome-ignore lint/suspicious/noExplicitAny: tests look into lines freely
    const read = async (fileId: string): Promise<any[]> =>
      (await (await client().files.content(fileId)).text())
        .trim()
        .split("\n")
        .map((each) => JSON.parse(each));
    const output = await read(batch.output_file_id!);
    const cut = batch.error_file_id ? await read(batch.error_file_id) : [];
    expect([...output, ...cut].map(({ custom_id }) => custom_id).sort()).toEqual(names.toSorted());
    expect(cut.every(({ error, response }) => error.code === "interrupted" && response === null)).toBe(true);
    // Those were under way when the service was killed: eight at once, and eight more after a pause.
    expect(cut.length).toBeLessThanOrEqual(16);
    expect(batch.request_counts).toEqual({ total: LINES, completed: output.length, failed: cut.length });
    expect((await client().batches.list()).data.map((each) => each.id)).toEqual([id]);
    const files = await client().files.list({ after: file.id, order: "asc" });
    expect(files.data.map((each) => each.id)).toContain(batch.output_file_id!);
    expect(new Set(sent).size).toBe(sent.length);
    const { records } = await rpc("usage.list", { limit: 200 }, token);
    expect(records).toHaveLength(LINES);
    expect(records.filter((each: { estimated: boolean }) => each.estimated)).toHaveLength(cut.length);
  } finally {
    child.kill("SIGKILL");
    await child.exited;
    upstream.stop();
    await drop();
  }
}
