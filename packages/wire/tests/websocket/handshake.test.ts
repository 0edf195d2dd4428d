import { describe, expect, test } from "bun:test";
import { webSocketHandshake } from "../../src/websocket/handshake.ts";

/** The request that RFC 6455 shows in section 1.3. */
const EXAMPLE: Record<string, string> = {
  upgrade: "websocket",
  connection: "Upgrade",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
  "sec-websocket-version": "13",
};

function ask(changes: Record<string, string | null> = {}, method = "GET") {
  const headers: Record<string, string | null> = { ...EXAMPLE, ...changes };
  return webSocketHandshake({ method, header: (name) => headers[name] ?? null });
}

describe("the WebSocket handshake", () => {
  test("answers the example of the RFC", () => {
    expect(ask()).toEqual({
      accepted: true,
      head: [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "",
        "",
      ].join("\r\n"),
    });
  });

  const fine: [string, Record<string, string | null>][] = [
    ["a list of connection options", { connection: "keep-alive, Upgrade" }],
    ["upper case", { connection: "UPGRADE", upgrade: "WebSocket" }],
    ["a list of protocols to upgrade to", { upgrade: "h2c , websocket" }],
    ["an offer of compression", { "sec-websocket-extensions": "permessage-deflate; client_max_window_bits" }],
    ["an offer of subprotocols", { "sec-websocket-protocol": "chat, superchat" }],
  ];
  test.each(fine)("accepts %s, and selects nothing", (_, changes) => {
    const outcome = ask(changes);
    expect(outcome).toMatchObject({ accepted: true });
    expect(JSON.stringify(outcome)).not.toMatch(/extensions|deflate|chat/i);
  });

  test.each<[string, string | null]>([
    ["no Upgrade", null],
    ["another protocol", "h2c"],
    ["a longer word", "websockets"],
  ])("takes a request with %s for an ordinary one", (_, upgrade) => {
    expect(ask({ upgrade })).toBeNull();
  });

  const refused: [string, Record<string, string | null>, number][] = [
    ["no Connection", { connection: null }, 400],
    ["a Connection without Upgrade", { connection: "keep-alive" }, 400],
    ["no key", { "sec-websocket-key": null }, 400],
    ["a short key", { "sec-websocket-key": "c2hvcnQ=" }, 400],
    ["a long key", { "sec-websocket-key": `${btoa("a".repeat(17))}` }, 400],
    ["a key that is not base64", { "sec-websocket-key": "dGhlIHNhbXBsZSBub25j*Q==" }, 400],
    [
      "two keys",
      { "sec-websocket-key": `${EXAMPLE["sec-websocket-key"]}, ${EXAMPLE["sec-websocket-key"]}` },
      400,
    ],
    ["no version", { "sec-websocket-version": null }, 426],
    ["an old version", { "sec-websocket-version": "8" }, 426],
  ];
  test.each(refused)("refuses %s", (_, changes, status) => {
    const outcome = ask(changes);
    expect(outcome).toMatchObject({ accepted: false, status, text: expect.stringMatching(/\S\n$/) });
    if (status === 426) expect(outcome).toMatchObject({ headers: { "sec-websocket-version": "13" } });
  });

  test("refuses every method but GET", () => {
    expect(ask({}, "POST")).toMatchObject({ accepted: false, status: 400 });
  });
});
