import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { eventsOf } from "../support/backends.ts";
import { bootInference, type InferenceBench } from "../support/inference.ts";

let bench: InferenceBench;
beforeAll(async () => {
  bench = await bootInference();
});
afterAll(() => bench.stop());

describe("chat completions", () => {
  test("answers as a whole, with the upstream's own bytes, and records the usage", async () => {
    const response = await bench.chat({}, { headers: { "x-service-ref": "order-7" } });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(response.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    const body = await response.json();
    expect(body.choices[0].message.content).toBe("hi there");
    const [row] = await bench.usageRows();
    expect(row).toMatchObject({
      model: "m",
      backend: "gateway",
      prompt_tokens: 9,
      completion_tokens: 4,
      total_tokens: 13,
      ref_id: "order-7",
    });
  });

  test("streams, ends with [DONE], and keeps the usage chunk to itself", async () => {
    const response = await bench.chat({ stream: true });
    expect(response.headers.get("content-type")).toStartWith("text/event-stream");
    const events = eventsOf(await response.text());
    expect(events.at(-1)).toBe("[DONE]");
    const chunks = events.slice(0, -1);
    expect(chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join("")).toBe("hi there");
    expect(chunks.every((chunk) => chunk.choices.length === 1)).toBe(true);
    expect(bench.upstream.requests.at(-1)!.json.stream_options).toEqual({ include_usage: true });
    const [row] = await bench.usageRows();
    expect(row).toMatchObject({ prompt_tokens: 9, completion_tokens: 4 });
  });

  test("hands on the usage chunk to a client that asked for it", async () => {
    const response = await bench.chat({ stream: true, stream_options: { include_usage: true, more: 1 } });
    const events = eventsOf(await response.text());
    expect(events.at(-2)).toMatchObject({ choices: [], usage: { total_tokens: 13 } });
    expect(bench.upstream.requests.at(-1)!.json.stream_options).toEqual({ include_usage: true, more: 1 });
  });
});
