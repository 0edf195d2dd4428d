import { expect, test } from "bun:test";
import { ClientAddress } from "../../src/http/client-address.ts";
import { isNetwork, Networks } from "../../src/http/networks.ts";

const addressOf = (remoteAddress: string, forwarded: string | null, trusted: readonly string[]) =>
  new ClientAddress({ isHttp10: false, remoteAddress, header: () => forwarded }, new Networks(trusted)).ip;

test("without trusted proxies the header is ignored", () => {
  expect(addressOf("10.0.0.1", "1.2.3.4", [])).toBe("10.0.0.1");
  expect(addressOf("10.0.0.1", "1.2.3.4", ["10.0.0.2"])).toBe("10.0.0.1");
});

test("behind a trusted proxy it is the last address that is not one", () => {
  expect(addressOf("10.0.0.1", "1.2.3.4", ["10.0.0.1"])).toBe("1.2.3.4");
  // What stands further left was written by the client.
  expect(addressOf("10.0.0.1", "6.6.6.6, 1.2.3.4 , 10.0.0.2", ["10.0.0.1", "10.0.0.2"])).toBe("1.2.3.4");
});

test("a proxy that names nobody else is the client", () => {
  expect(addressOf("10.0.0.1", null, ["10.0.0.1"])).toBe("10.0.0.1");
  expect(addressOf("10.0.0.1", " , ", ["10.0.0.1"])).toBe("10.0.0.1");
  expect(addressOf("10.0.0.1", "10.0.0.1", ["10.0.0.1"])).toBe("10.0.0.1");
});

test("an IPv4 address that came over IPv6 is the same address", () => {
  expect(addressOf("::ffff:10.0.0.1", "1.2.3.4", ["10.0.0.1"])).toBe("1.2.3.4");
  expect(addressOf("::ffff:10.0.0.1", null, [])).toBe("10.0.0.1");
});

test("a whole network may be trusted", () => {
  expect(addressOf("10.1.2.3", "1.2.3.4, 10.9.9.9", ["10.0.0.0/8"])).toBe("1.2.3.4");
  expect(addressOf("11.1.2.3", "1.2.3.4", ["10.0.0.0/8"])).toBe("11.1.2.3");
  expect(addressOf("fd00::7", "1.2.3.4", ["fd00::/16", "10.0.0.1"])).toBe("1.2.3.4");
  // What is not an address is nobody's proxy.
  expect(addressOf("10.1.2.3", "unknown", ["10.0.0.0/8"])).toBe("unknown");
});

test("addresses and networks are told from everything else", () => {
  for (const text of ["10.0.0.7", "10.0.0.0/8", "0.0.0.0/0", "::1", "fd00::/128"])
    expect([text, isNetwork(text)]).toEqual([text, true]);
  for (const text of [
    "",
    "proxy",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0/8",
    "10.0.0.0/8/8",
    "::/129",
    "10.0.0.0/-1",
  ])
    expect([text, isNetwork(text)]).toEqual([text, false]);
});
