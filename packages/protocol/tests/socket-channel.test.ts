import { expect, test } from "bun:test";
import { until } from "@model-gateway/testing/until.ts";
import { BodySender } from "../src/tunnel/flow.ts";
import { DATA_BYTES_MAX, FrameType, WINDOW_BYTES } from "../src/tunnel/frames.ts";
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

const MEGABYTE = 1024 * 1024;

test("a congested socket holds little, lets every body go on, and drains by itself", async () => {
  const { channel, drain, buffered } = slowSocket();
  let done = 0;
  for (let id = 1; id <= 100; id++) {
    const sender = new BodySender({ channel, streamId: id });
    sender.whenOver = () => done++;
    sender.write(new Uint8Array(4 * DATA_BYTES_MAX));
    sender.end();
  }
  await until("the socket is full", () => buffered() >= MEGABYTE);
  let mostBytes = 0;
  await until("all is sent", () => {
    mostBytes = Math.max(mostBytes, buffered());
    drain(MEGABYTE / 2);
    return done === 100;
  });
  // All of them at once would be 12.5 MiB.
  expect(mostBytes).toBeLessThan(5 * MEGABYTE);
});

test("a body is paused when it has no credit, and goes on when it gets some", () => {
  const { channel } = slowSocket();
  const heard: string[] = [];
  const sender = new BodySender({ channel, streamId: 1 });
  sender.source = { pause: () => heard.push("pause"), resume: () => heard.push("resume") };
  sender.write(new Uint8Array(WINDOW_BYTES));
  expect(heard).toEqual([]);
  sender.write(new Uint8Array(10));
  sender.grant(5);
  expect(heard).toEqual(["pause"]);
  sender.grant(5);
  expect(heard).toEqual(["pause", "resume"]);
});

test("nothing is sent on a socket that is gone", async () => {
  const { channel, buffered } = slowSocket();
  channel.close();
  channel.send(FrameType.data, 1, new Uint8Array(10));
  await Promise.resolve();
  expect([buffered(), channel.isFull]).toEqual([0, false]);
});
