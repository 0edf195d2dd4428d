import { expect, test } from "bun:test";
import { join } from "node:path";
import { until } from "@model-gateway/testing/until.ts";
import { politeHandler } from "@model-gateway/testing/upstream.ts";
import { startLoad } from "./support/load.ts";
import { VideoStage } from "./support/video-stage.ts";
import { isAlive, lossesOf, openWorkers } from "./support/workers.ts";

const DIES_AT_WRITE = join(import.meta.dir, "support/dies-at-write.ts");

const DEATHS = 6;
/** It dies at one of its first writes. */
const WRITES_MAX = 30;
const LANES = 24;
const PATIENCE_MS = 60_000;

const messages = [{ role: "user", content: "hi" }];
/** More than is sent with other messages in one write. */
const long = [{ role: "user", content: "word ".repeat(16_000) }];
/** What is asked for, and how the end of its answer is recognised. */
const REQUESTS = [
  { path: "/v1/chat/completions", body: { messages }, end: /\}$/ },
  { path: "/v1/chat/completions", body: { messages, stream: true }, end: /data: \[DONE\]\n\n$/ },
  { path: "/v1/chat/completions", body: { messages: long }, end: /\}$/ },
  { path: "/v1/responses", body: { input: "hi", store: false }, end: /\}$/ },
  { path: "/v1/responses", body: { input: "hi", stream: true }, end: /response\.completed/ },
  { path: "/v1/messages", body: { messages, max_tokens: 8 }, end: /\}$/ },
  { path: "/v1/messages", body: { messages, max_tokens: 8, stream: true }, end: /message_stop/ },
  { path: "/api/chat", body: { messages }, end: /"done":true/ },
  { path: "/v1/embeddings", body: { input: "hi" }, end: /\}$/ },
  { path: "/v1/images/generations", body: { prompt: "a cat" }, end: /\}$/ },
];

test(
  "a service that dies at any of its writes has sent no end of an answer without a usage row",
  async () => {
    const env: Record<string, string> = { SERVICE_DRAIN_TIMEOUT_MS: "1000" };
    const stage = await openWorkers(1, env, DIES_AT_WRITE);
    const { service, upstream, groupKey } = stage;
    try {
      // Several answers at once, so that several requests end in one turn.
      const held: (() => void)[] = [];
      upstream.answer(async (request, reply) => {
        await new Promise<void>((resolve) => {
          if (held.push(resolve) === 1)
            setTimeout(() => {
              for (const answer of held.splice(0)) answer();
            }, 4);
        });
        return politeHandler(request, reply);
      });
      const answered: string[] = [];
      const load = startLoad(LANES, async (sequence) => {
        const { path, body, end } = REQUESTS[sequence % REQUESTS.length]!;
        const response = await fetch(`${service.url}${path}`, {
          method: "POST",
          headers: { "content-type": "application/json", authorization: `Bearer ${groupKey}` },
          body: JSON.stringify({ model: "m", ...body }),
        });
        const text = await response.text();
        if (response.ok && end.test(text)) answered.push(response.headers.get("x-request-id")!);
        return new Response(text, { status: response.status });
      });
      for (let death = 0; death < DEATHS; death++) {
        await service.kill();
        const nth = 1 + Math.floor(Math.random() * WRITES_MAX);
        env.DIES_AT_WRITE = `${death % 2 === 0 ? "before" : "after"} ${nth}`;
        await service.start();
        await until("it has died", () => !isAlive(service.pid), PATIENCE_MS);
      }
      await load.stop();
      delete env.DIES_AT_WRITE;
      await service.start();
      expect(await service.drain()).toBe(0);
      expect((await lossesOf(stage, answered)).problems).toEqual([]);
      expect(answered.length).toBeGreaterThan(DEATHS);
    } finally {
      await stage.end();
    }
  },
  PATIENCE_MS * 2,
);

test(
  "a service that dies before the usage of an answer is written has not stored the answer in its conversation",
  async () => {
    const env: Record<string, string> = {};
    const stage = await openWorkers(1, env, DIES_AT_WRITE);
    const { service, admin, groupKey } = stage;
    try {
      const { id } = await service.rpc("conversations.create", {}, admin);
      await service.kill();
      env.DIES_AT_WRITE = "before 1";
      await service.start();
      const asked = fetch(`${service.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${groupKey}` },
        body: JSON.stringify({ model: "m", conversation_id: id, messages }),
      });
      await expect(asked).rejects.toThrow();
      await until("it has died", () => !isAlive(service.pid), PATIENCE_MS);
      delete env.DIES_AT_WRITE;
      await service.start();
      const stored = await service.rpc("conversations.get", { conversation_id: id }, admin);
      expect(stored.messages.map(({ role }: { role: string }) => role)).toEqual(["user"]);
    } finally {
      await stage.end();
    }
  },
  PATIENCE_MS * 2,
);

test(
  "a service that dies before the usage of a video is written has not noted it as settled, and charges it later",
  () =>
    VideoStage.with("sqlite", async (stage) => {
      const { instance } = stage;
      const { options } = instance;
      const env = options.env ?? {};
      await instance.kill();
      // The first line is that of the request which creates the job.
      Object.assign(options, { preload: DIES_AT_WRITE, env: { ...env, DIES_AT_WRITE: "before 2" } });
      await instance.start();
      await stage.create("clip");
      await until("it has died", () => !isAlive(instance.pid), PATIENCE_MS);
      expect(await stage.isSettled("clip")).toBe(false);
      options.env = env;
      await instance.start();
      await until("it is charged", () => stage.hasRow("clip"), PATIENCE_MS);
    }),
  PATIENCE_MS * 2,
);
