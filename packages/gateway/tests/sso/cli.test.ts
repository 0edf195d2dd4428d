import { afterEach, beforeEach, expect, test } from "bun:test";
import { systemClock } from "@model-gateway/gateway/kernel/clock.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { openSso, verified } from "./support.ts";

let aheadMs = 0;
let gateway: TestGateway;
let ada: string;
beforeEach(async () => {
  aheadMs = 0;
  const clock = Object.create(systemClock, { now: { value: () => systemClock.now() + aheadMs } });
  gateway = await bootGateway({ overrides: { clock } });
  await gateway.signIn("root");
  ada = await gateway.signIn("ada");
});
afterEach(() => gateway.stop());

const VERIFIER = "a-verifier-that-the-command-line-keeps-for-itself";
const challengeOf = (verifier: string) => new Bun.CryptoHasher("sha256").update(verifier).digest("base64url");
const approve = async (bearer = ada, verifier = VERIFIER): Promise<string> =>
  (await gateway.rpc("auth.cli.approve", { challenge: challengeOf(verifier) }, bearer)).code;
const redeem = (code: string, verifier = VERIFIER) => gateway.call("auth.cli.redeem", { code, verifier });

test("who is signed in to the console lets a command line in: a session of its own, in the audit log", async () => {
  const { result } = await redeem(await approve());
  expect(result.user.email).toBe("ada@example.com");
  expect((await gateway.rpc("auth.me", {}, result.access_token)).email).toBe("ada@example.com");
  expect(await gateway.rpc("auth.sessions.list", {}, ada)).toHaveLength(2);
  const { entries } = await gateway.rpc("audit.list", {}, await gateway.signIn("root"));
  const seen = entries.filter(({ action }: { action: string }) => action.startsWith("auth.cli."));
  expect(seen.map(({ action }: { action: string }) => action)).toEqual([
    "auth.cli.redeem",
    "auth.cli.approve",
  ]);
  expect(JSON.stringify(entries)).not.toContain(VERIFIER);
});

test("a code works once, with its verifier, within a minute, and is used up by nobody else", async () => {
  const code = await approve();
  const foreign = await approve(ada, "another-verifier-of-another-command-line-0123");
  for (const [why, given, verifier] of [
    ["another verifier", code, "b-verifier-that-the-command-line-keeps-for-itself"],
    ["another's code", foreign, VERIFIER],
    ["a changed code", `${code.slice(0, -3)}AAA`, VERIFIER],
    ["no code of ours", "eyJhbGciOiJub25lIn0.e30.", VERIFIER],
  ] as const)
    expect([why, (await redeem(given, verifier)).error?.code]).toEqual([why, -32005]);
  const both = await Promise.all([redeem(code), redeem(code)]);
  expect(both.filter(({ result }) => result)).toHaveLength(1);
  expect((await redeem(code)).error.message).toContain("was used before");

  const late = await approve();
  aheadMs = 61_000;
  expect((await redeem(late)).error.code).toBe(-32005);
});

test("an approval ends with the session that gave it, and with the account", async () => {
  const code = await approve();
  const elsewhere = await gateway.signIn("ada");
  await gateway.rpc("auth.sessions.end", {}, elsewhere);
  expect((await redeem(code)).error.code).toBe(-32005);

  const last = await approve(elsewhere);
  const root = await gateway.signIn("root");
  const { id } = await gateway.rpc("auth.me", {}, elsewhere);
  await gateway.rpc("users.update", { user_id: id, disabled: true }, root);
  expect((await redeem(last)).error.code).toBe(-32005);
});

test("only people approve, what is given is checked, and tries are limited", async () => {
  const challenge = challengeOf(VERIFIER);
  const { key } = await gateway.rpc("keys.create", { name: "k" }, ada);
  for (const bearer of [undefined, key])
    expect((await gateway.call("auth.cli.approve", { challenge }, bearer)).error.code).toBe(-32005);
  for (const wrong of [undefined, "", VERIFIER, `${challenge}=`, 7])
    expect((await gateway.call("auth.cli.approve", { challenge: wrong }, ada)).error.data!.fields).toEqual([
      "challenge",
    ]);
  expect((await redeem("x", "short")).error.data!.fields).toEqual(["verifier"]);
  const code = await approve();
  const wrong = "b-verifier-that-the-command-line-keeps-for-itself";
  for (let i = 0; i < 20; i++) expect((await redeem(code, wrong)).error.code).toBe(-32005);
  expect((await redeem(code, wrong)).error.data!.retry_after).toBeGreaterThan(0);
  expect((await redeem(code)).result.user.email).toBe("ada@example.com");
});

test("what the service sealed for a sign-in with the provider is no code", async () => {
  const sso = await openSso();
  try {
    sso.provider.people.set("eve", verified("eve@example.org"));
    const { cookie } = await sso.begin();
    const answer = await sso.gateway.call("auth.cli.redeem", {
      code: cookie.slice("sign-in=".length),
      verifier: VERIFIER,
    });
    expect(answer.error.code).toBe(-32005);
  } finally {
    await sso.stop();
  }
});
