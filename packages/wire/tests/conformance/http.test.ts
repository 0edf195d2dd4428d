import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { echo, type RawClient, TestServer } from "../server/support.ts";
import { HTTP_CASES, type HttpCase, UNFINISHED } from "./http-cases.ts";

let server: TestServer;
beforeAll(() => {
  server = new TestServer(echo);
});
afterAll(() => server.stop());

/** Checks everything that comes back for the request, which is on its way. */
async function check(client: RawClient, { answers, stays = false, request }: HttpCase): Promise<void> {
  for (const expected of answers) {
    const { status, body } = await client.answer();
    if (typeof expected === "number") expect(status).toBe(expected);
    else expect([status, body.toString("latin1")]).toEqual([200, expected]);
  }
  if (stays) {
    client.send("GET /after HTTP/1.1\r\nHost: a\r\n\r\n");
    expect((await client.answer()).body.toString()).toBe("GET /after?\n");
  } else {
    expect((await client.everything()).length).toBe(0);
  }
  expect(server.requests.map(({ path }) => path)).not.toContain("/smuggled");
  if (request.includes("/smuggled")) expect(answers.join()).not.toContain("/smuggled");
  client.leave();
}

for (const [group, cases] of Object.entries(HTTP_CASES)) {
  const table = cases.map((each) => [each.what, each] as const);
  describe(group, () => {
    test.each(table)("%s", async (_what, each) => {
      const client = await server.connect();
      client.send(each.request);
      await check(client, each);
    });

    test.each(table)("%s, byte by byte", async (_what, each) => {
      const client = await server.connect();
      await client.sendPieces([...Buffer.from(each.request, "latin1")].map((byte) => Buffer.from([byte])));
      await check(client, each);
    });
  });
}

test("every request cut in two, at every position", async () => {
  for (const each of Object.values(HTTP_CASES).flat()) {
    const bytes = Buffer.from(each.request, "latin1");
    // Not each position of each: the whole table has some twenty thousand.
    const step = Math.max(1, Math.floor(bytes.length / 16));
    for (let cut = 1; cut < bytes.length; cut += step) {
      const client = await server.connect();
      await client.sendPieces([bytes.subarray(0, cut), bytes.subarray(cut)]);
      await check(client, each);
    }
  }
}, 120_000);

test.each(UNFINISHED)(
  "a client that leaves after %s is not answered, and nothing is handed on",
  async (_what, request) => {
    const before = server.requests.length;
    const client = await server.connect();
    client.send(request);
    client.end();
    expect((await client.everything()).length).toBe(0);
    expect(server.requests.length).toBe(before);
  },
);
