import { expect, test } from "bun:test";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { wholeStream } from "@model-gateway/testing/upstream.ts";
import { type InferenceBench, withInference } from "../support/inference.ts";

const DAY_MS = 86_400_000;
const messages = (content: unknown) => [
  { role: "system", content: "Be brief" },
  { role: "user", content },
];

/** Every file below a folder that has the text in it. */
function filesWith(folder: string, text: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => {
    const path = join(folder, name);
    return statSync(path).isFile() && readFileSync(path).includes(text);
  });
}

onEachDatabase("captured prompts", (fresh) => {
  const withBench = (work: (bench: InferenceBench) => Promise<void>) => withInference(fresh, work);
  const keyOf = async (bench: InferenceBench) =>
    (await bench.rpc<{ id: string; capture_until: string | null }[]>("keys.list", {}, bench.token))[0]!;
  /** The record of one chat. */
  async function recordOf(bench: InferenceBench, body: Record<string, unknown>, token = bench.token) {
    const answer = await bench.chat(body);
    await answer.text();
    return bench.rpc("requests.get", { id: answer.headers.get("x-request-id") }, token);
  }

  test("are stored only while an administrator has them captured, and for the key's owner and administrators", () =>
    withBench(async (bench) => {
      const db = bench.app.rooms.usage.store.db;
      const stored = async () =>
        (await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM captured_prompts"))?.n;
      const said = "canary-before-it-was-turned-on";
      expect(await recordOf(bench, { messages: messages(said) })).toMatchObject({ captured: null });
      const { id: key_id, capture_until } = await keyOf(bench);
      expect(capture_until).toBeNull();
      expect(await stored()).toBe(0);
      expect(filesWith(bench.dataDir, said)).toEqual([]);

      const bob = await bench.signIn("bob");
      expect((await bench.call("keys.capture.set", { key_id, days: 1 }, bob)).error.code).toBe(-32007);
      for (const days of [0, 31, 1.5, "1"])
        expect((await bench.call("keys.capture.set", { key_id, days }, bench.token)).error.message).toContain(
          "days",
        );
      const { capture_until: until } = await bench.rpc("keys.capture.set", { key_id, days: 2 }, bench.token);
      expect(Math.abs(Date.parse(until) - Date.now() - 2 * DAY_MS)).toBeLessThan(60_000);
      expect((await keyOf(bench)).capture_until).toBe(until);
      expect(await bench.rpc("keys.capture.list", {}, bench.token)).toMatchObject([
        { key_id, capture_until: until },
      ]);

      const whole = await recordOf(bench, { messages: messages("what is up?"), temperature: 0.5 });
      expect(whole.captured).toMatchObject({
        asked: { messages: messages("what is up?"), temperature: 0.5 },
        answered: { role: "assistant", content: expect.stringMatching(/./) },
      });
      bench.upstream.answer((_, reply) => reply.stream(wholeStream(["in ", "pieces"])));
      const streamed = await recordOf(bench, { messages: messages("stream it"), stream: true });
      expect(streamed.captured.asked.messages[1].content).toBe("stream it");
      expect(streamed.captured.answered.content).toBe("in pieces");
      // Nobody else's, and nowhere else.
      expect((await bench.call("requests.get", { id: streamed.id }, bob)).error).toBeDefined();
      const { records } = await bench.rpc("requests.list", {}, bench.token);
      expect(JSON.stringify(records)).not.toContain("stream it");
      const audit = await bench.rpc("audit.list", {}, bench.token);
      const entry = audit.entries.find(({ action }: { action: string }) => action === "keys.capture.set");
      expect(entry).toMatchObject({ target: key_id, details: { days: 2 } });

      const off = await bench.rpc("keys.capture.set", { key_id, days: null, forget: true }, bench.token);
      expect(off).toEqual({ capture_until: null, forgotten: 2 });
      expect(await stored()).toBe(0);
      expect(await recordOf(bench, { messages: messages("canary after") })).toMatchObject({ captured: null });
      expect(await stored()).toBe(0);
    }));

  test("are those of every API, and the texts of embeddings", () =>
    withBench(async (bench) => {
      const { id: key_id } = await keyOf(bench);
      await bench.rpc("keys.capture.set", { key_id, days: 1 }, bench.token);
      const said = { role: "user", content: "canary" };
      for (const [path, body, asked] of [
        ["responses", { input: "canary" }, { messages: [said] }],
        ["messages", { messages: [said], max_tokens: 9 }, { messages: [said] }],
        ["completions", { prompt: "canary" }, { prompt: "canary" }],
        ["embeddings", { input: ["canary", "two"] }, { input: ["canary", "two"] }],
      ] as const) {
        if (path === "embeddings")
          bench.upstream.answer((_, reply) =>
            reply.json({ object: "list", data: [{ object: "embedding", index: 0, embedding: [1] }] }),
          );
        const answer = await bench.post(`/v1/${path}`, { model: "m", ...body });
        expect([path, answer.status]).toEqual([path, 200]);
        await answer.text();
        const id = answer.headers.get("x-request-id") ?? answer.headers.get("request-id");
        const record = await bench.rpc("requests.get", { id }, bench.token);
        expect([path, record.captured]).toEqual([
          path,
          expect.objectContaining({ asked: expect.objectContaining(asked) }),
        ]);
      }
    }));

  test("are cut to a bounded size, leave files out, and go when they are too old", () =>
    withBench(async (bench) => {
      const { id: key_id } = await keyOf(bench);
      await bench.rpc("keys.capture.set", { key_id, days: 1 }, bench.token);
      const image = { type: "image_url", image_url: { url: `data:image/png;base64,${"A".repeat(50_000)}` } };
      const long = await recordOf(bench, {
        messages: [
          ...Array.from({ length: 300 }, (_, i) => ({
            role: "user",
            content: `${i}\u0000${"ü".repeat(2_000)}`,
          })),
          { role: "user", content: [{ type: "text", text: "the last" }, image] },
        ],
      });
      expect(long.captured.asked.cut).toBe(true);
      expect(JSON.stringify(long.captured.asked).length).toBeLessThan(70_000);
      const last = long.captured.asked.messages.at(-1).content;
      expect(last[0].text).toBe("the last");
      expect(last[1].image_url.url).toMatch(/^\[a file, 5\d{4} characters\]$/);

      const { sweep } = bench.app.rooms.captures;
      expect(await sweep(Date.now(), 100)).toBe(0);
      expect(await sweep(Date.now() + 8 * DAY_MS, 100)).toBe(1);
      expect((await bench.rpc("requests.get", { id: long.id }, bench.token)).captured).toBeNull();
    }));
});
