import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";

let gateway: TestGateway;
let token: string;
const clock = new ManualClock();
beforeAll(async () => {
  gateway = await bootGateway({ overrides: { clock } });
  token = await gateway.signIn("ada");
});
afterAll(() => gateway.stop());

class Socket {
  readonly #inbox: string[] = [];
  #wake: () => void = () => {};
  readonly closed: Promise<{ code: number; reason: string }>;
  private constructor(readonly socket: WebSocket) {
    this.closed = new Promise((resolve) => {
      socket.onclose = ({ code, reason }) => resolve({ code, reason });
    });
    socket.onmessage = ({ data }) => {
      this.#inbox.push(data as string);
      this.#wake();
    };
  }
  static async open(query = ""): Promise<Socket> {
    const socket = new WebSocket(`${gateway.url.replace("http", "ws")}/api/rpc${query}`);
    const wrapped = new Socket(socket);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    return wrapped;
  }
  async next(): Promise<{ id: unknown; result?: Record<string, unknown>; error?: { code: number } }> {
    while (this.#inbox.length === 0) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return JSON.parse(this.#inbox.shift()!);
  }
  call(method: string, params?: unknown, id: unknown = 1) {
    this.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    return this.next();
  }
}

describe("an anonymous socket", () => {
  test("may call the five public methods and nothing else", async () => {
    const socket = await Socket.open();
    const email = "ws@example.com";
    const registered = await socket.call("auth.register", { email, password: "long enough" });
    expect(registered.result?.token_type).toBe("Bearer");
    expect((await socket.call("auth.login", { email, password: "long enough" })).result).toBeDefined();
    expect(
      (await socket.call("auth.refresh", { refresh_token: registered.result?.refresh_token })).result,
    ).toBeDefined();
    expect((await socket.call("providers.list")).result).toBeDefined();
    expect((await socket.call("system.status")).result).toBeDefined();
    const others = ["auth.me", "keys.list", "providers.add", "no.such.method", "rpc.discover"];
    const publicByHttp = [
      "auth.logout",
      "auth.link.show",
      "auth.link.accept",
      "auth.cli.redeem",
      "group.invite.show",
      "group.invite.register",
    ];
    for (const method of [...others, ...publicByHttp])
      expect([method, (await socket.call(method)).error?.code]).toEqual([method, -32005]);
    socket.socket.close();
  });

  test("gets one acknowledgement of system.probe, and the socket closes", async () => {
    const socket = await Socket.open();
    const answer = await socket.call("system.probe");
    expect(answer).toEqual({ jsonrpc: "2.0", id: 1, result: { ok: true, status: "ok" } } as never);
    expect((await socket.closed).code).toBe(1000);
  });

  test("is closed after 10 idle seconds, counted from its last message", async () => {
    const socket = await Socket.open();
    await socket.call("system.status");
    clock.advance(9_000);
    await socket.call("system.status");
    clock.advance(9_000);
    expect((await socket.call("system.status")).result).toBeDefined();
    clock.advance(10_001);
    expect((await socket.closed).reason).toContain("idle");
  });

  test("is what an invalid token makes", async () => {
    const socket = await Socket.open("?token=nonsense");
    expect((await socket.call("auth.me")).error?.code).toBe(-32005);
    expect((await socket.call("system.status")).result).toBeDefined();
    socket.socket.close();
  });
});

/** A frame's header as a client sends it; the mask is four zeros, so that a payload stands as it is. */
function clientFrame(opcode: number, payloadBytes: number): Buffer {
  const head = Buffer.alloc(14);
  head[0] = 0x80 | opcode;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(payloadBytes), 2);
  return head;
}

/** A socket that is written byte by byte: what the server sends after the handshake. */
async function rawSocket(query = ""): Promise<{ write(bytes: Buffer): void; closed(): Promise<Buffer> }> {
  const socket = connect(gateway.app.port, "127.0.0.1");
  const key = Buffer.alloc(16).toString("base64");
  socket.write(
    `GET /api/rpc${query} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`,
  );
  let received = Buffer.alloc(0);
  const { promise: upgraded, resolve } = Promise.withResolvers<void>();
  socket.on("error", () => {});
  socket.on("data", (bytes: Buffer) => {
    received = Buffer.concat([received, bytes]);
    if (received.includes("\r\n\r\n")) resolve();
  });
  const ended = new Promise<void>((done) => socket.once("end", done));
  await upgraded;
  const framesFrom = received.indexOf("\r\n\r\n") + 4;
  return {
    write: (bytes) => void socket.write(bytes),
    async closed() {
      await ended;
      socket.destroy();
      return received.subarray(framesFrom);
    },
  };
}

describe("what is kept of a stranger's messages", () => {
  test("a message of more than 1 MiB closes the socket when its length is read", async () => {
    const socket = await rawSocket();
    socket.write(clientFrame(1, 1024 * 1024 + 1));
    const farewell = await socket.closed();
    expect([farewell[0], farewell.readUInt16BE(2)]).toEqual([0x88, 1009]);
  });

  test("fragments count together", async () => {
    const socket = await rawSocket();
    const first = clientFrame(1, 1024 * 1024);
    first[0] = 0x01;
    socket.write(Buffer.concat([first, Buffer.alloc(1024 * 1024, 32), clientFrame(0, 1)]));
    const farewell = await socket.closed();
    expect([farewell[0], farewell.readUInt16BE(2)]).toEqual([0x88, 1009]);
  });

  test("calls under way hold 1 MiB together; what comes on top is answered with a refusal", async () => {
    const socket = await Socket.open();
    const pad = "x".repeat(600_000);
    const ids = [0, 1, 2, 3];
    // Hashing a password takes a moment, so that the first is under way when the others come.
    for (const id of ids) {
      const params = { email: "ada@example.com", password: "wrong", pad };
      socket.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method: "auth.login", params }));
    }
    const answers = [];
    for (const _ of ids) answers.push(await socket.next());
    expect(answers.map(({ id }) => id).toSorted()).toEqual(ids);
    const busy = answers.filter(({ error }) => /under way on this socket/.test(JSON.stringify(error)));
    expect(busy.map(({ id }) => id).toSorted()).toEqual([1, 2, 3]);
    expect((await socket.call("system.status", { pad })).result).toBeDefined();
    socket.socket.close();
  });
});

describe("an authenticated socket", () => {
  test("calls everything, stays open, and answers batches, binary frames and rubbish", async () => {
    const socket = await Socket.open(`?token=${token}`);
    clock.advance(60_000);
    expect((await socket.call("auth.me")).result?.email).toBe("ada@example.com");
    expect((await socket.call("system.probe")).error?.code).toBe(-32601);
    socket.socket.send(new TextEncoder().encode('{"jsonrpc":"2.0","id":"bin","method":"auth.me"}'));
    expect((await socket.next()).id).toBe("bin");
    socket.socket.send(new Uint8Array([0xff, 0xfe, 0x00]));
    expect((await socket.next()).error?.code).toBe(-32700);
    socket.socket.send("{");
    expect((await socket.next()).error?.code).toBe(-32700);
    socket.socket.send(
      '[{"jsonrpc":"2.0","id":1,"method":"auth.me"},{"jsonrpc":"2.0","id":2,"method":"keys.list"}]',
    );
    const batch = (await socket.next()) as unknown as { id: number }[];
    expect(batch.map(({ id }) => id)).toEqual([1, 2]);
    socket.socket.send(
      JSON.stringify({ jsonrpc: "2.0", id: 1, method: "auth.me", params: { pad: "x".repeat(1_100_000) } }),
    );
    expect((await socket.next()).error?.code).toBe(-32600);
    socket.socket.close();
  });

  test("answers every call of a burst under its own id", async () => {
    const socket = await Socket.open(`?token=${token}`);
    const ids = Array.from({ length: 800 }, (_, i) => i);
    for (const id of ids)
      socket.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method: id % 2 ? "keys.list" : "auth.me" }));
    const answers: Awaited<ReturnType<Socket["next"]>>[] = [];
    while (answers.length < ids.length) answers.push(await socket.next());
    expect(answers.map(({ id }) => id).toSorted((a, b) => Number(a) - Number(b))).toEqual(ids);
    expect(answers.filter(({ error }) => error)).toEqual([]);
    // More than may wait: whichever of them are refused, each has its answer.
    const flood = Array.from({ length: 200 }, (_, i) => `flood ${i}`);
    for (const id of flood) {
      const params = { pad: "x".repeat(100_000) };
      socket.socket.send(JSON.stringify({ jsonrpc: "2.0", id, method: "keys.list", params }));
    }
    const seen: typeof answers = [];
    while (seen.length < flood.length) seen.push(await socket.next());
    expect(seen.map(({ id }) => id).toSorted()).toEqual(flood.toSorted());
    expect(seen.every(({ result, error }) => result !== undefined || error?.code === -32000)).toBe(true);
    socket.socket.close();
  }, 30_000);

  test("may be the admin token's: its methods, and no person's", async () => {
    const socket = await Socket.open(`?token=${ADMIN_TOKEN}`);
    clock.advance(60_000);
    const plan = { user_email: "ada@example.com", tier: "pro" };
    expect((await socket.call("billing.plan.set", plan)).result).toEqual({ ok: true });
    expect((await socket.call("group.list")).result).toBeDefined();
    expect((await socket.call("keys.list")).error?.code).toBe(-32005);
    expect((await socket.call("agents.list")).error?.code).toBe(-32005);
    expect((await socket.call("system.probe")).error?.code).toBe(-32601);
    socket.socket.close();
  });

  test("loses its rights when its token expires", async () => {
    const fresh = (
      await gateway.rpc("auth.login", { email: "ada@example.com", password: "correct horse battery" })
    ).access_token;
    const socket = await Socket.open(`?token=${fresh}`);
    expect((await socket.call("auth.me")).result).toBeDefined();
    clock.advance(16 * 60_000);
    expect((await socket.call("auth.me")).error?.code).toBe(-32005);
    socket.socket.close();
  });
});

// Last: the clock is moved on past the end of the tokens above.
describe("an authenticated socket whose token expires", () => {
  test("stays with a fresh token: auth.refresh over the socket renews it", async () => {
    const session = await gateway.rpc("auth.login", { email: "ada@example.com", password: PASSWORD });
    const socket = await Socket.open(`?token=${session.access_token}`);
    clock.advance(16 * 60_000);
    expect((await socket.call("auth.me")).error?.code).toBe(-32005);
    const renewed = await socket.call("auth.refresh", { refresh_token: session.refresh_token });
    expect(renewed.result?.access_token).toBeString();
    expect((await socket.call("auth.me")).result?.email).toBe("ada@example.com");
    clock.advance(16 * 60_000);
    expect((await socket.call("auth.me")).error?.code).toBe(-32005);
    // In a batch, too.
    const refresh_token = renewed.result?.refresh_token;
    socket.socket.send(
      JSON.stringify([{ jsonrpc: "2.0", id: 1, method: "auth.refresh", params: { refresh_token } }]),
    );
    await socket.next();
    expect((await socket.call("auth.me")).result?.email).toBe("ada@example.com");
    socket.socket.close();
  });

  test("never becomes somebody else's, and a stranger's stays a stranger's", async () => {
    await gateway.signIn("eve");
    const login = (name: string) =>
      gateway.rpc("auth.login", { email: `${name}@example.com`, password: PASSWORD });
    const socket = await Socket.open(`?token=${(await login("ada")).access_token}`);
    const { refresh_token } = await login("eve");
    expect((await socket.call("auth.refresh", { refresh_token })).result).toBeDefined();
    expect((await socket.call("auth.me")).result?.email).toBe("ada@example.com");
    const stranger = await Socket.open();
    const again = await login("eve");
    expect(
      (await stranger.call("auth.refresh", { refresh_token: again.refresh_token })).result,
    ).toBeDefined();
    expect((await stranger.call("auth.me")).error?.code).toBe(-32005);
    const admin = await Socket.open(`?token=${ADMIN_TOKEN}`);
    const third = await login("eve");
    expect((await admin.call("auth.refresh", { refresh_token: third.refresh_token })).result).toBeDefined();
    expect((await admin.call("group.list")).result).toBeDefined();
    expect((await admin.call("auth.me")).error?.code).toBe(-32005);
    for (const { socket: each } of [socket, stranger, admin]) each.close();
  });
});
