import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CdpMessage, CdpRequest, EngineTransport } from "../../src/engines/contract.ts";
import { EngineLibrary, type ForeignOptions, openForeignTransport } from "../../src/engines/foreign/index.ts";
import { doctor, resolveEngine, SetupError } from "../../src/resolve/index.ts";
import { type TempDir, tempDir } from "../resolve/support.ts";
import { compileEngine, include } from "./compile.ts";

let temp: TempDir;
let stub: string;

const compile = (name: string, flags?: string[], source?: string) =>
  compileEngine(join(temp.path, name), flags, source);

beforeAll(() => {
  temp = tempDir();
  stub = compile("stub.so");
});
afterAll(() => temp.remove());

/** What the CDP connection does with a transport, as far as these tests need it. */
class Client {
  readonly events: CdpMessage[] = [];
  readonly closes: string[] = [];
  private nextId = 1;
  private readonly waiting = new Map<number, (message: CdpMessage) => void>();
  private readonly watchers = new Set<() => void>();

  constructor(readonly transport: EngineTransport) {
    transport.onMessage = (message) => {
      if (message.id === undefined) this.events.push(message);
      else this.waiting.get(message.id)?.(message);
      for (const watcher of this.watchers) watcher();
    };
    transport.onClose = (reason) => {
      this.closes.push(reason);
      for (const watcher of this.watchers) watcher();
    };
  }

  call(method: string, params?: object, sessionId?: string): Promise<CdpMessage> {
    const id = this.nextId++;
    const request: CdpRequest = { id, method, params, sessionId };
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.transport.send(request);
    });
  }

  until(condition: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const check = () => {
        if (!condition()) return;
        this.watchers.delete(check);
        resolve();
      };
      this.watchers.add(check);
      check();
    });
  }
}

const clients: Client[] = [];
async function open(options: ForeignOptions = {}, libraryPath = stub): Promise<Client> {
  const engine = { kind: "foreign", name: "servo", libraryPath, source: "override" } as const;
  const client = new Client(await openForeignTransport(engine, options));
  clients.push(client);
  return client;
}
afterEach(async () => {
  for (const { transport } of clients.splice(0)) await transport.close();
});

describe("an engine behind the C contract", () => {
  test("answers and sends events, sessions included", async () => {
    const client = await open();
    expect(await client.call("Target.getTargets")).toEqual({
      id: 1,
      result: { targetInfos: [{ targetId: "T1", type: "page", url: "about:blank" }] },
    });
    const attached = await client.call("Target.attachToTarget", { targetId: "T1", flatten: true });
    expect(attached.result).toEqual({ sessionId: "S1" });
    const navigated = await client.call("Page.navigate", { url: "https://example.org/" }, "S1");
    expect(navigated).toEqual({ id: 3, result: { frameId: "F1", loaderId: "L1" }, sessionId: "S1" });
    await client.until(() => client.events.length === 3);
    expect(client.events.map(({ method, sessionId }) => [method, sessionId])).toEqual([
      ["Target.targetCreated", undefined],
      ["Target.attachedToTarget", undefined],
      ["Page.loadEventFired", "S1"],
    ]);
    const value = await client.call("Runtime.evaluate", { expression: "1+1" });
    expect(value.result).toEqual({ result: { type: "number", value: 2 } });
  });

  test("passes errors on, answers unknown methods itself, and names refusals", async () => {
    const client = await open();
    const error = await client.call("Runtime.evaluate", { expression: "2+2" });
    expect(error.error).toEqual({ code: -32000, message: "only 1+1 é" });
    expect((await client.call("Page.navigate", { url: "x" })).error?.code).toBe(-32001);
    expect((await client.call("Browser.unheardOf")).error).toEqual({
      code: -32601,
      message: "servo does not know Browser.unheardOf",
    });
    expect((await client.call("Stub.refuse")).error?.message).toContain("a bad argument");
  });

  test("binary content becomes the protocol's base64", async () => {
    const client = await open();
    const { result } = await client.call("Page.captureScreenshot");
    const { data } = result as { data: string };
    expect([...Buffer.from(data, "base64")]).toEqual([0x89, 0x50, 0x4e, 0x47, 0, 1, 2, 255]);
  });

  test("large messages and any text go both ways", async () => {
    const client = await open();
    const big = await client.call("Stub.big", { bytes: 32_000_000 });
    expect((big.result as { text: string }).text.length).toBe(32_000_000);
    const text = `ünïcödé 🎉 \u0000 "quotes" \\ ${"y".repeat(1_000_000)}`;
    const echoed = await client.call("Stub.echo", { text });
    expect(echoed.result).toEqual({ text });
  });

  test("a burst arrives whole and in order, and every message is given back", async () => {
    const client = await open();
    await client.call("Stub.burst");
    const items = client.events.filter(({ method }) => method === "Stub.item");
    expect(items.map(({ params }) => (params as { index: number }).index)).toEqual(
      Array.from({ length: 1000 }, (_, index) => index),
    );
    expect((await client.call("Stub.counts")).result).toMatchObject({ handedOut: 0 });
  });

  test("events that nobody asked for are seen, and an idle engine is hardly ever polled", async () => {
    const client = await open();
    await client.call("Stub.tick");
    await client.until(() => client.events.filter(({ method }) => method === "Stub.ticked").length === 3);
    const polls = async () => ((await client.call("Stub.counts")).result as { polls: number }).polls;
    const before = await polls();
    // The pause is what is looked at: a loop without pauses would poll many thousand times in it.
    await Bun.sleep(500);
    expect((await polls()) - before).toBeLessThan(100);
  });

  test("requests to a busy engine are kept in order and delivered", async () => {
    const client = await open();
    await client.call("Stub.busy");
    const answers = await Promise.all([1, 2, 3].map((n) => client.call("Stub.echo", { n })));
    expect(answers.map(({ result }) => result)).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
  });

  test("the options reach the engine, and closing destroys it exactly once", async () => {
    const options = { headless: true, width: 800, height: 600, profileDir: temp.path };
    const client = await open(options);
    await client.call("Stub.tick");
    await Promise.all([client.transport.close(), client.transport.close()]);
    expect(readFileSync(join(temp.path, "destroyed"), "utf8")).toBe(`${JSON.stringify(options)}\n`);
    expect(client.closes).toEqual(["closed"]);
    // After the end nothing reaches the engine any more.
    client.transport.send({ id: 99, method: "Stub.echo" });
  });

  test.each([
    ["Stub.die", "the engine has ended"],
    ["Stub.garbage", "not JSON"],
  ])("%s ends the link with a reason, once", async (method, reason) => {
    const client = await open();
    client.call(method);
    await client.until(() => client.closes.length > 0);
    await client.transport.close();
    expect(client.closes).toHaveLength(1);
    expect(client.closes[0]).toContain(reason);
  });

  test("two engines run side by side", async () => {
    const [one, two] = [await open(), await open()];
    const answers = await Promise.all([one.call("Stub.echo", { n: 1 }), two.call("Stub.echo", { n: 2 })]);
    expect(answers.map(({ result }) => result)).toEqual([{ n: 1 }, { n: 2 }]);
    await one.transport.close();
    expect((await two.call("Stub.echo", { n: 3 })).result).toEqual({ n: 3 });
  });
});

describe("a library that cannot be used", () => {
  async function failure(libraryPath: string, options: ForeignOptions = {}): Promise<SetupError> {
    const error = await open(options, libraryPath).then(
      () => null,
      (thrown) => thrown,
    );
    expect(error).toBeInstanceOf(SetupError);
    return error as unknown as SetupError;
  }

  test("missing", async () => {
    const error = await failure(join(temp.path, "nowhere.so"));
    expect(error.code).toBe("engine_library_missing");
    expect(error.message).toContain("BROWSER_SERVO_LIB");
  });

  test("of another version", async () => {
    const error = await failure(compile("v7.so", ["-DSTUB_ABI=7"]));
    expect(error.code).toBe("engine_abi_mismatch");
    expect(error.message).toContain("version 7");
    expect(error.message).toContain("needs 1");
  });

  test("without a symbol", async () => {
    const error = await failure(compile("nofree.so", ["-DSTUB_NO_FREE"]));
    expect(error.code).toBe("engine_library_invalid");
    expect(error.message).toContain("does not export be_msg_free");
  });

  test("that is no library, or says nonsense, or is another engine", async () => {
    const text = join(temp.path, "text.so");
    writeFileSync(text, "hello");
    expect((await failure(text)).code).toBe("engine_library_invalid");
    expect((await failure(compile("badinfo.so", ["-DSTUB_BAD_INFO"]))).message).toContain("be_info");
    const other = await failure(compile("webkit.so", ['-DSTUB_NAME="webkit"']));
    expect(other.message).toContain('is the engine "webkit", not servo');
  });

  test("whose own libraries are missing: they are named", async () => {
    const source = join(temp.path, "dep.c");
    writeFileSync(source, "int dep(void) { return 1; }\n");
    const dependency = compile("libgone.so.1", ["-Wl,-soname,libgone.so.1"], source);
    const path = compile("needy.so", ["-Wl,--no-as-needed", dependency]);
    await Bun.file(dependency).delete();
    const error = await failure(path);
    expect(error.code).toBe("engine_library_invalid");
    expect(error.message).toContain("libgone.so.1");
  });

  test("whose engine does not start", async () => {
    const error = await failure(stub, { url: "fail:" });
    expect(error.code).toBe("engine_create_failed");
    expect(error.message).toContain("a bad argument");
  });
});

describe("from the settings to the engine", () => {
  test("resolution hands over what the transport takes, and doctor reads the library", async () => {
    const env = { BROWSER_BACKEND: "servo", BROWSER_SERVO_LIB: stub };
    const engine = await resolveEngine({ env });
    if (engine.kind !== "foreign") throw new Error("expected a foreign engine");
    const client = new Client(await openForeignTransport(engine));
    clients.push(client);
    expect((await client.call("Stub.echo", { ok: true })).result).toEqual({ ok: true });
    const report = await doctor({ env });
    expect(report).toMatchObject({ ok: true, binary: { version: "0.1-stub", missing: [] } });
    expect(new EngineLibrary(stub).info.methods?.has("Page.navigate")).toBe(true);
  });

  test("the header compiles as C++ too, with the documented layout", () => {
    const source = join(temp.path, "layout.cc");
    writeFileSync(
      source,
      `#include "browser_engine.h"
#include <cstddef>
static_assert(sizeof(be_msg) == 40 && offsetof(be_msg, json) == 8 && offsetof(be_msg, json_len) == 16 &&
              offsetof(be_msg, bytes) == 24 && offsetof(be_msg, bytes_len) == 32, "layout");
`,
    );
    const compiler = Bun.which("c++") ? "c++" : "cc";
    const language = compiler === "c++" ? [] : ["-x", "c", "-std=c11", "-Dstatic_assert=_Static_assert"];
    if (compiler === "cc")
      writeFileSync(source, readFileSync(source, "utf8").replace("<cstddef>", "<stddef.h>"));
    const built = Bun.spawnSync([compiler, ...language, "-fsyntax-only", `-I${include}`, source]);
    expect(built.stderr.toString()).toBe("");
    expect(existsSync(join(include, "browser_engine.h"))).toBe(true);
  });
});
