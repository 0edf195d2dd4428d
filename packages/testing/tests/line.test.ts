import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Line } from "../src/line.ts";
import { until } from "../src/until.ts";

const PIECES = 20;

describe("a line between two programs", () => {
  let server: Bun.Server<undefined>;
  let line: Line;
  let left = 0;
  /** Pieces are sent one by one, each when it is asked for. */
  let send = () => {};
  beforeAll(async () => {
    server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      fetch(request) {
        if (request.method === "POST") return request.text().then((text) => new Response(text));
        request.signal.addEventListener("abort", () => left++);
        return new Response(
          new ReadableStream({
            start(controller) {
              let sent = 0;
              send = () => {
                controller.enqueue(new TextEncoder().encode(`${sent++};`));
                if (sent === PIECES) controller.close();
              };
              send();
            },
          }),
        );
      },
    });
    line = await Line.open({ targetPort: server.port! });
  });
  afterAll(async () => {
    line.close();
    await server.stop(true);
  });

  const open = async (signal?: AbortSignal) => {
    const response = await fetch(`http://127.0.0.1:${line.port}`, { keepalive: false, signal });
    const seen = { text: "", end: "" };
    void (async () => {
      const decoder = new TextDecoder();
      try {
        for await (const bytes of response.body!) seen.text += decoder.decode(bytes);
        seen.end = "end";
      } catch {
        seen.end = "broken";
      }
    })();
    await until("the first piece", () => seen.text.length > 0);
    return seen;
  };

  test("carries bytes both ways, in order", async () => {
    const text = Array.from({ length: 100_000 }, (_, i) => i).join(" ");
    const response = await fetch(`http://127.0.0.1:${line.port}`, { method: "POST", body: text });
    expect((await response.text()) === text).toBe(true);
  });

  test("slow: everything arrives all the same", async () => {
    line.set("slow");
    const text = "x".repeat(2_000);
    const response = await fetch(`http://127.0.0.1:${line.port}`, { method: "POST", body: text });
    expect(await response.text()).toBe(text);
    line.set("pass");
  });

  test("stalled: what was sent arrives when it flows again, nothing is lost", async () => {
    const seen = await open();
    line.set("stall");
    for (let i = 1; i < PIECES; i++) send();
    expect(seen).toEqual({ text: "0;", end: "" });
    line.set("pass");
    await until("the end", () => seen.end !== "");
    expect(seen).toEqual({ text: Array.from({ length: PIECES }, (_, i) => `${i};`).join(""), end: "end" });
  });

  test("half-open: nobody is told, new connections work, and the old ones end with a reset", async () => {
    const seen = await open();
    line.halfOpen();
    send();
    const other = await open();
    expect({ seen, other }).toEqual({ seen: { text: "0;", end: "" }, other: { text: "0;", end: "" } });
    line.resetHalfOpen();
    await until("the reset", () => seen.end === "broken");
    expect(other.end).toBe("");
    line.cut();
    await until("the cut", () => other.end === "broken");
    expect(line.connectionCount).toBe(0);
  });

  test("a client that leaves is seen on the other side", async () => {
    const before = left;
    const leave = new AbortController();
    await open(leave.signal);
    leave.abort();
    await until("the server hears of it", () => left > before);
  });
});
