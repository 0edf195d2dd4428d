import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";

const MAIN = join(import.meta.dir, "../../gateway/src/main.ts");
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0).reverse()) await undo();
});

/** Starts the service as a newcomer does, and reads what it prints up to the command line to paste. */
async function startDemoProcess(dataDir: string) {
  const child = Bun.spawn([process.execPath, MAIN, "--demo"], {
    env: {
      PATH: process.env.PATH,
      SERVICE_PORT: "0",
      SERVICE_DATA_DIR: dataDir,
      SERVICE_DRAIN_GRACE_MS: "0",
      SERVICE_LOG_LEVEL: "error",
      SERVICE_WARM_UP: "0",
    },
    stdout: "pipe",
    stderr: "inherit",
  });
  cleanup.push(() => child.kill("SIGKILL"));
  const decoder = new TextDecoder();
  let printed = "";
  for await (const chunk of child.stdout) {
    printed += decoder.decode(chunk, { stream: true });
    if (/^curl .*\n/m.test(printed)) break;
  }
  const shown = (pattern: RegExp) => pattern.exec(printed)?.[1] ?? `not shown in: ${printed}`;
  return {
    child,
    curl: shown(/^(curl .*)$/m),
    key: shown(/API key\s+(\S+)/),
    password: shown(/password (\S+)/),
    url: shown(/listening on (\S+)/),
  };
}

/** Runs a command line as a shell would. */
async function paste(command: string): Promise<string> {
  const child = Bun.spawn(["sh", "-c", command], { stdout: "pipe", stderr: "ignore" });
  return new Response(child.stdout).text();
}

const contentOf = (stream: string): string =>
  [...stream.matchAll(/^data: (\{.*)$/gm)]
    .map(([, json]) => JSON.parse(json!).choices?.[0]?.delta?.content ?? "")
    .join("");

const rpcAt =
  (url: string) =>
  async (method: string, params: object, bearer = "") => {
    const response = await fetch(`${url}/api/rpc`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${bearer}` },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    const { result, error } = await response.json();
    if (error) throw new Error(error.message);
    return result;
  };

/** The link to the demonstration's video, once that is made. */
async function videoLink({ url, password }: { url: string; password: string }): Promise<string> {
  const rpc = rpcAt(url);
  const { access_token: token } = await rpc("auth.login", { email: "demo@example.com", password });
  let link = "";
  await until("the video is made", async () => {
    const { jobs } = await rpc("video.list", {}, token);
    link = jobs[0]?.result?.url ?? "";
    return link !== "";
  });
  return link;
}

/** What the demonstration's voice says to some sound. */
function echoOf(url: string, key: string, audio: string): Promise<string> {
  const headers = { authorization: `Bearer ${key}` };
  const socket = new WebSocket(`${url.replace("http", "ws")}/v1/realtime?model=demo-voice`, {
    headers,
  } as never);
  cleanup.push(() => socket.close());
  socket.onopen = () => socket.send(JSON.stringify({ type: "input_audio_buffer.append", audio }));
  return new Promise((resolve, reject) => {
    socket.onerror = reject;
    socket.onmessage = ({ data }) => {
      const { type, delta } = JSON.parse(data);
      if (type === "response.output_audio.delta") resolve(delta);
    };
  });
}

test("the printed line streams an answer, and a second run goes on with the same user, key and memory", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "demo-"));
  cleanup.push(() => rmSync(dataDir, { recursive: true, force: true }));
  const first = await startDemoProcess(dataDir);
  const stream = await paste(first.curl);
  expect(contentOf(stream)).toContain('You said: "Hello there, my cat is called Misty."');
  expect(stream).toEndWith("data: [DONE]\n\n");
  expect(statSync(join(dataDir, "demo", "demo-credentials.json")).mode & 0o777).toBe(0o600);
  const link = await videoLink(first);
  first.child.kill("SIGTERM");
  expect(await first.child.exited).toBe(0);

  const second = await startDemoProcess(dataDir);
  expect({ key: second.key, password: second.password }).toEqual({
    key: first.key,
    password: first.password,
  });
  // What was made before can still be watched.
  expect(await videoLink(second)).toBe(link);
  expect((await fetch(link)).headers.get("content-type")).toStartWith("video/");
  const question = second.curl.replace("Hello there, my cat is called Misty.", "What is the name of my cat?");
  expect(contentOf(await paste(question))).toContain("I remember: Hello there, my cat is called Misty.");
});

test("every page has something to show: a month of use up to now, a group, conversations, facts, a video, a node, failures", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "demo-"));
  cleanup.push(() => rmSync(dataDir, { recursive: true, force: true }));
  const { url, password, key } = await startDemoProcess(dataDir);
  const rpc = rpcAt(url);
  const { access_token: token } = await rpc("auth.login", { email: "demo@example.com", password });
  const { records, total } = await rpc("usage.list", { limit: 200 }, token);
  expect(total).toBeGreaterThan(1_000);
  expect(records.every(({ cost }: { cost: number | null }) => cost !== null)).toBe(true);
  const plan = await rpc("billing.plan", {}, token);
  expect([plan.current_tier, plan.quota_exceeded]).toEqual(["pro", false]);
  const [group] = await rpc("group.list", {}, token);
  expect(group).toMatchObject({ name: "Vision lab", my_role: "owner", member_count: 3 });
  const { balance, entries } = await rpc("group.credits.balance", { group_id: group.id }, token);
  expect(balance).toBe(5_000 - 800 - 1_600 - 300);
  expect(entries).toHaveLength(4);
  expect((await rpc("ledger.self", {}, token)).entries.length).toBeGreaterThan(0);
  expect(await rpc("routes.list", {}, token)).toHaveLength(2);

  const conversations = await rpc("conversations.list", {}, token);
  expect(conversations).toHaveLength(3);
  const { items } = await rpc("memory.list", {}, token);
  expect(JSON.stringify(items)).toContain("Heron");
  const { jobs } = await rpc("video.list", {}, token);
  expect(jobs[0]).toMatchObject({ model: "demo-video" });
  expect(await echoOf(url, key, "AQACAA==")).toBe("AQABAAIA");
  const [node] = await rpc("agents.list", {}, token);
  expect(node).toMatchObject({ name: "demo-rack" });
  const { failures, minutes } = await rpc("system.activity", {}, token);
  expect(failures.length).toBeGreaterThanOrEqual(3);
  expect(minutes.length).toBeGreaterThan(0);
  const month = new Date(Date.now() - 31 * 24 * 3_600_000).toISOString();
  const { totals } = await rpc("requests.stats", { since: month }, token);
  expect(totals.requests).toBeGreaterThan(1_000);
  expect(totals.failed).toBeGreaterThan(50);
  const latestAtMs = Math.max(
    ...records.map(({ created_at }: { created_at: string }) => Date.parse(created_at)),
  );
  expect(Date.now() - latestAtMs).toBeLessThan(10 * 60_000);
});
