import { expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { DATA_BYTES_MAX } from "../src/tunnel/frames.ts";
import { SocketChannel } from "../src/tunnel/socket-channel.ts";

/** A socket whose peer reads only when told to. */
function slowSocket() {
  let buffered = 0;
  const channel = new SocketChannel({
    send: (frame) => {
      buffered += frame.byteLength;
    },
    bufferedBytes: () => buffered,
  });
  const drain = (bytes: number) => {
    buffered = Math.max(0, buffered - bytes);
  };
  return { channel, drain, buffered: () => buffered };
}

test("a congested socket holds little, lets writers go in their order, and drains by itself", async () => {
  const { channel, drain, buffered } = slowSocket();
  const order: number[] = [];
  const writer = async (name: number) => {
    for (let frame = 0; frame < 4; frame++) {
      await channel.writable();
      channel.send(new Uint8Array(DATA_BYTES_MAX));
      if (frame === 0) order.push(name);
    }
  };
  const writers = Promise.all(Array.from({ length: 100 }, (_, name) => writer(name)));
  await until("the socket is full", () => buffered() >= 1024 * 1024);
  let mostBytes = 0;
  const reader = setInterval(() => {
    mostBytes = Math.max(mostBytes, buffered());
    drain(512 * 1024);
  }, 1);
  await writers;
  clearInterval(reader);
  expect(order).toEqual(Array.from({ length: 100 }, (_, name) => name));
  // All of them at once would be 12.5 MiB.
  expect(mostBytes).toBeLessThan(5 * 1024 * 1024);
});

test("nobody waits for a socket that is gone", async () => {
  const { channel, buffered } = slowSocket();
  channel.send(new Uint8Array(2 * 1024 * 1024));
  const waiting = channel.writable();
  expect(waiting).not.toBeNull();
  channel.close();
  await waiting;
  const before = buffered();
  channel.send(new Uint8Array(10));
  expect([buffered(), channel.writable()]).toEqual([before, null]);
});
