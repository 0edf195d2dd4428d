import { expect, test } from "bun:test";
import { isIP } from "node:net";
import { ipFamily, isNetwork, Networks } from "../../src/http/index.ts";

const PARTS = [
  "0",
  "1",
  "7",
  "09",
  "10",
  "99",
  "100",
  "199",
  "200",
  "249",
  "250",
  "255",
  "256",
  "300",
  "",
  " 1",
  "1e1",
  "-1",
];
const OTHERS = [
  "1.2.3",
  "1.2.3.4.5",
  "1.2.3.4.",
  ".1.2.3.4",
  "1..2.3",
  "1.2.3.4\n",
  "1.2.3.4/8",
  "1.2.3.4:80",
  "localhost",
  "::",
  "::1",
  ":",
  ":::",
  "1::2::3",
  "fe80::1%eth0",
  "::ffff:1.2.3.4",
  "::ffff:1.2.3.400",
  "2001:db8:0:0:0:0:0:1",
  "2001:db8:0:0:0:0:0:0:1",
  "[::1]",
  "gggg::1",
];

test("families of addresses are those of node:net", () => {
  const texts = PARTS.flatMap((a) => PARTS.flatMap((b) => [`${a}.${b}.0.1`, `1.2.${a}.${b}`]));
  for (const text of [...texts, ...OTHERS])
    expect([text, ipFamily(text)]).toEqual([text, isIP(text) as 0 | 4 | 6]);
});

test("networks hold their addresses of both families, and none hold nothing", () => {
  const networks = new Networks(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"]);
  for (const address of ["10.1.2.3", "2001:db8::5", "192.0.2.7"]) expect(networks.has(address)).toBe(true);
  for (const address of ["11.0.0.1", "2001:db9::5", "192.0.2.8", "", "10.0.0"])
    expect(networks.has(address)).toBe(false);
  expect(new Networks([]).has("10.1.2.3")).toBe(false);
  expect(["10.0.0.0/33", "10.0.0.0/", "::/129", "::/0", "10.0.0.0/8/8"].map(isNetwork)).toEqual([
    false,
    false,
    false,
    true,
    false,
  ]);
});
