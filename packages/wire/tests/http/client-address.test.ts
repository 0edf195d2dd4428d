import { expect, test } from "bun:test";
import { ClientAddress } from "../../src/http/client-address.ts";

const addressOf = (remoteAddress: string, forwarded: string | null, trusted: readonly string[]) =>
  new ClientAddress({ remoteAddress, header: () => forwarded }, new Set(trusted)).ip;

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
