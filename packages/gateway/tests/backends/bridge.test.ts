import { afterEach, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { until } from "@model-gateway/testing/until.ts";
import { Bridge, isBridgeUrl } from "../../src/backends/bridge/index.ts";
import { ServiceError } from "../../src/kernel/errors.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { type FakeBridge, startFakeBridge } from "../support/bridge.ts";

const URL_OF_GPU = "bridge://gpu-7/ollama";
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanup.splice(0)) await undo();
});

/** A port that accepts connections, as a tunnel's local end does. */
function tunnel() {
  let accepted = 0;
  const open = () => {
    accepted++;
  };
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { open, data() {} } });
  const close = () => listener.stop(true);
  cleanup.push(close);
  return { port: listener.port, close, accepted: () => accepted };
}

/** Lets keepalives fall due, each with time to be carried out, until `check` holds. */
async function keepAliveUntil(clock: ManualClock, check: () => boolean, what: string): Promise<void> {
  for (let keepalive = 0; keepalive < 20; keepalive++) {
    clock.advance(15_000);
    for (let wait = 0; wait < 100; wait++) {
      if (check()) return;
      await Bun.sleep(10);
    }
  }
  throw new Error(`it never came to this: ${what}`);
}

function connect(agent: FakeBridge = startFakeBridge()) {
  const clock = new ManualClock();
  const bridge = new Bridge({ agentUrl: agent.url, clock, log: silentLog });
  cleanup.push(
    () => bridge.close(),
    () => agent.stop(),
  );
  const ports: number[] = [];
  const watch = () =>
    cleanup.push(bridge.watch({ name: "gpu", url: URL_OF_GPU, onPort: (port) => ports.push(port) }));
  return { agent, bridge, clock, ports, watch };
}

async function refusal(work: Promise<unknown>): Promise<ServiceError> {
  const error = await work.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ServiceError);
  expect((error as ServiceError).kind).toBe("bridge_unreachable");
  return error as ServiceError;
}

test("a bridge URL becomes a local port, reached by HTTP or by WebSocket", async () => {
  const { agent, bridge } = connect();
  agent.services.set("gpu-7/ollama", 4321);
  expect(await bridge.connect(URL_OF_GPU)).toBe(4321);
  expect(agent.received[0]).toMatchObject({
    method: "Bridge.Connect",
    params: { node: "gpu-7", service: "ollama" },
  });
  expect(isBridgeUrl("BRIDGE://a/b")).toBe(true);
  expect(isBridgeUrl("http://bridge/")).toBe(false);
});

test("every way in which it cannot be resolved is bridge_unreachable", async () => {
  const { agent, bridge } = connect();
  expect((await refusal(bridge.connect(URL_OF_GPU))).message).toContain("no route to gpu-7");
  for (const url of ["bridge://", "bridge://node", "bridge://node/", "bridge:///service"])
    expect((await refusal(bridge.connect(url))).message).toContain("bridge://<node>/<service>");
  agent.services.set("gpu-7/ollama", 99_999);
  expect((await refusal(bridge.connect(URL_OF_GPU))).message).toContain("local_port");
  await agent.stop();
  await refusal(bridge.connect(URL_OF_GPU));
});

test("a tunnel that lives is left alone; one that died is made anew, and its new port is told", async () => {
  const { agent, bridge, clock, ports, watch } = connect();
  const first = tunnel();
  agent.services.set("gpu-7/ollama", first.port);
  await bridge.connect(URL_OF_GPU);
  watch();
  const second = tunnel();
  agent.services.set("gpu-7/ollama", second.port);
  clock.advance(14_999);
  expect(first.accepted()).toBe(0);
  await keepAliveUntil(clock, () => first.accepted() > 0, "the tunnel was tried");
  expect(agent.of("Bridge.Connect")).toHaveLength(1);
  first.close();
  await keepAliveUntil(clock, () => ports.length > 0, "the new port was told");
  expect(ports).toEqual([second.port]);
});

test("a tunnel that comes back on the same port is no change", async () => {
  const { agent, bridge, clock, ports, watch } = connect();
  const first = tunnel();
  agent.services.set("gpu-7/ollama", first.port);
  await bridge.connect(URL_OF_GPU);
  watch();
  first.close();
  const askedOften = () => agent.of("Bridge.Connect").length >= 3;
  await keepAliveUntil(clock, askedOften, "the agent was asked again and again");
  expect(ports).toEqual([]);
});

test("what could not be resolved at first is told once the agent is there", async () => {
  const lost = startFakeBridge();
  await lost.stop();
  const { bridge, clock, ports, watch } = connect(lost);
  await refusal(bridge.connect(URL_OF_GPU));
  watch();
  const agent = startFakeBridge(lost.port);
  cleanup.push(() => agent.stop());
  const there = tunnel();
  agent.services.set("gpu-7/ollama", there.port);
  await keepAliveUntil(clock, () => ports.length > 0, "the port was told");
  expect(ports).toEqual([there.port]);
});

test("whoever resolves after the watch began is not told the same port again", async () => {
  const { agent, bridge, clock, ports, watch } = connect();
  const first = tunnel();
  agent.services.set("gpu-7/ollama", first.port);
  watch();
  await bridge.connect(URL_OF_GPU);
  await keepAliveUntil(clock, () => first.accepted() > 0, "the tunnel was tried");
  for (let turn = 0; turn < 5; turn++) await Bun.sleep(5);
  expect(ports).toEqual([]);
});

test("an ended watch is silent", async () => {
  const { agent, bridge, clock, ports } = connect();
  const first = tunnel();
  agent.services.set("gpu-7/ollama", first.port);
  await bridge.connect(URL_OF_GPU);
  const end = bridge.watch({ name: "gpu", url: URL_OF_GPU, onPort: (port) => ports.push(port) });
  first.close();
  agent.services.set("gpu-7/ollama", tunnel().port);
  clock.advance(15_000);
  end();
  await until("the check that was under way went on", () => agent.of("Bridge.Connect").length >= 2);
  for (let turn = 0; turn < 5; turn++) await Bun.sleep(5);
  expect(ports).toEqual([]);
});
