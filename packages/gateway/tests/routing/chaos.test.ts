import { expect, test } from "bun:test";
import { runRouteChaos } from "./chaos.ts";

test("a route with a killed, a frozen and a rate-limited backend fails no chat", async () => {
  const { chats, failed } = await runRouteChaos(2_000);
  expect({ chats, failed }).toEqual({ chats: 2_000, failed: 0 });
}, 120_000);
