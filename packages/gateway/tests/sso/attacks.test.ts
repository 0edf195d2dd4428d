import { afterEach, expect, test } from "bun:test";
import { bootGateway, PASSWORD } from "@model-gateway/testing/gateway.ts";
import { generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { openSso, type Sso, verified } from "./support.ts";

let sso: Sso;
afterEach(() => sso.stop());

async function opened(options?: Parameters<typeof openSso>[0]): Promise<Sso> {
  sso = await openSso(options);
  await sso.gateway.signIn("root");
  sso.provider.people.set("ada", verified("ada@example.org"));
  return sso;
}

const accounts = async () => {
  const root = await sso.gateway.signIn("root");
  return (await sso.gateway.rpc("users.list", {}, root)).total;
};

test("a redirect is good only in the browser that began, with its state, once", async () => {
  const { begin, finish, provider } = await opened();
  const mine = await begin();
  const theirs = await begin();
  const query = await provider.visit(mine.url, "ada");
  const altered = new URLSearchParams(query);
  altered.set("state", "guessed");
  const withoutState = new URLSearchParams(query);
  withoutState.delete("state");
  for (const [why, asked, cookie] of [
    ["another state", altered.toString(), mine.cookie],
    ["no state", withoutState.toString(), mine.cookie],
    ["the state twice", `${query}&state=guessed`, mine.cookie],
    ["no cookie", query, ""],
    ["another browser's cookie", query, theirs.cookie],
    ["a changed cookie", query, `${mine.cookie.slice(0, -3)}AAA`],
    ["a cookie of no cipher", query, "sign-in=eyJhbGciOiJub25lIn0.e30."],
    ["nothing at all", "", mine.cookie],
  ] as const) {
    expect([why, (await finish(asked, cookie)).status]).toEqual([why, 403]);
  }
  expect((await finish(query, mine.cookie)).status).toBe(200);
  expect(await finish(query, mine.cookie)).toMatchObject({
    status: 403,
    message: expect.stringContaining("was used before"),
  });
});

test("of two that finish one attempt at once, one gets in", async () => {
  const { begin, finish, provider } = await opened();
  const { url, cookie } = await begin();
  const query = await provider.visit(url, "ada");
  const both = await Promise.all([finish(query, cookie), finish(query, cookie)]);
  expect(both.map(({ status }) => status).sort()).toEqual([200, 403]);
});

test("a code of another sign-in is worth nothing: the verifier is not its own", async () => {
  const { begin, finish, provider } = await opened();
  const theirs = await begin();
  const stolen = new URLSearchParams(await provider.visit(theirs.url, "ada")).get("code")!;
  const mine = await begin();
  const query = new URLSearchParams(await provider.visit(mine.url, "eve"));
  query.set("code", stolen);
  expect((await finish(query.toString(), mine.cookie)).status).toBe(403);
  expect(await accounts()).toBe(1);
});

test("an ID token that is not exactly right signs nobody in", async () => {
  const { provider, signIn } = await opened();
  const foreign = await generateKeyPair("RS256");
  const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  type Sign = (claims: JWTPayload) => Promise<string>;
  const tampered: Record<string, (claims: JWTPayload, sign: Sign) => Promise<string>> = {
    "another nonce": (claims, sign) => sign({ ...claims, nonce: "another" }),
    "no nonce": ({ nonce: _, ...claims }, sign) => sign(claims),
    "another audience": (claims, sign) => sign({ ...claims, aud: "another-client" }),
    "several audiences, made for another": (claims, sign) =>
      sign({ ...claims, aud: ["gateway", "another"], azp: "another" }),
    "another issuer": (claims, sign) => sign({ ...claims, iss: "https://evil.example" }),
    expired: (claims, sign) => sign({ ...claims, iat: 1_000_000, exp: 1_000_600 }),
    "no expiry": ({ exp: _, ...claims }, sign) => sign(claims),
    "no subject": ({ sub: _, ...claims }, sign) => sign(claims),
    "another subject than userinfo's": (claims, sign) => sign({ ...claims, sub: "root" }),
    "alg none": async (claims) => `${base64({ alg: "none", typ: "JWT" })}.${base64(claims)}.`,
    "alg HS256 with the client's secret": (claims) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: "HS256" })
        .sign(new TextEncoder().encode("a-secret-of-the-gateway")),
    "signed by someone else": (claims) =>
      new SignJWT(claims).setProtectedHeader({ alg: "RS256", kid: "test" }).sign(foreign.privateKey),
    "not a token": async () => "nonsense",
  };
  for (const [why, tamper] of Object.entries(tampered)) {
    provider.tamper = tamper;
    expect([why, (await signIn("ada")).status]).toEqual([why, 403]);
  }
  expect(await accounts()).toBe(1);
  provider.tamper = (claims, sign) => sign(claims);
  expect((await signIn("ada")).status).toBe(200);
});

test("an address is verified by who names it, not by who names another", async () => {
  const { provider, signIn, gateway } = await opened();
  gateway.app.rooms.sso.options.settings!.linksByEmail = true;
  // The userinfo endpoint has verified ada's own address; the token names another and says nothing about it.
  provider.tamper = (claims, sign) => sign({ ...claims, email: "root@example.com" });
  expect(await signIn("ada")).toMatchObject({ status: 403, message: expect.stringContaining("verified") });
  // The other way round: the token has verified an address without naming it, and userinfo names one that is not.
  provider.people.set("eve", { email: "root@example.com", email_verified: false });
  provider.tamper = (claims, sign) => sign({ ...claims, email_verified: true });
  expect(await signIn("eve")).toMatchObject({ status: 403, message: expect.stringContaining("verified") });
  // In lower case the Kelvin sign is a k.
  await gateway.signIn("kim");
  provider.tamper = null;
  provider.people.set("kelvin", verified("\u212aim@example.com"));
  expect((await signIn("kelvin")).status).toBe(403);
  provider.tamper = (claims, sign) => sign({ ...claims, email: "ada@example.org" });
  expect((await signIn("ada")).session?.user.email).toBe("ada@example.org");
});

test("a link is made only for someone who is still signed in to the account when it ends", async () => {
  const { gateway, begin, finish, provider, signIn } = await opened();
  const account = { email: "victim@example.com", password: PASSWORD };
  const stolen = await gateway.rpc("auth.register", account);
  const thief = await gateway.signIn("thief");
  provider.people.set("eve", verified("eve@example.org"));
  const attempt = async () => {
    const { url, cookie } = await begin({}, stolen.access_token);
    return { query: await provider.visit(url, "eve"), cookie };
  };
  const [unsigned, others, late] = [await attempt(), await attempt(), await attempt()];
  expect((await finish(unsigned.query, unsigned.cookie)).status).toBe(401);
  expect((await finish(others.query, others.cookie, thief)).status).toBe(401);
  await gateway.rpc("auth.logout", { refresh_token: stolen.refresh_token });
  expect((await finish(late.query, late.cookie, stolen.access_token)).status).toBe(401);
  const again = await gateway.rpc("auth.login", account);
  expect(await gateway.rpc("auth.identities.list", {}, again.access_token)).toEqual([]);
  // Its owner links it as before.
  expect((await signIn("eve", {}, again.access_token)).status).toBe(200);
  expect(await gateway.rpc("auth.identities.list", {}, again.access_token)).toHaveLength(1);
});

test("an attempt ends after ten minutes", async () => {
  let aheadMs = 0;
  const { systemClock } = await import("@model-gateway/gateway/kernel/clock.ts");
  const clock = Object.create(systemClock, { now: { value: () => systemClock.now() + aheadMs } });
  const { begin, finish, provider } = await opened({ overrides: { clock } });
  const { url, cookie } = await begin();
  const query = await provider.visit(url, "ada");
  aheadMs = 601_000;
  expect((await finish(query, cookie)).message).toContain("took too long");
  aheadMs = 0;
  expect((await finish(query, cookie)).status).toBe(200);
});

test("the way back leads nowhere else", async () => {
  const { signIn } = await opened();
  for (const returnTo of [
    "https://evil.example/",
    "//evil.example",
    "/\\evil.example",
    "/%5cevil.example/..//evil.example",
    "javascript:alert(1)",
    "\t//evil.example",
    "/..//evil.example",
    "/signed-in?code=1",
    "evil",
  ]) {
    const { return_to } = await signIn("ada", { return_to: returnTo });
    expect(new URL(return_to, "https://gateway.example").origin).toBe("https://gateway.example");
    expect(return_to.startsWith("//")).toBe(false);
    expect(return_to).not.toContain("signed-in");
  }
});

test("the cookie is the browser's alone, and the sign-in is at the public address only", async () => {
  const { gateway } = await opened();
  const start = (headers: Record<string, string>) =>
    fetch(`${gateway.url}/api/auth/oidc/start`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: "{}",
    });
  const set = (await start({})).headers.get("set-cookie");
  expect(set).toMatch(/^sign-in=[\w.-]+; Path=\/api\/auth\/oidc; Max-Age=600; HttpOnly; SameSite=Lax$/);
  const rebound = await start({ host: "evil.example" });
  expect(rebound.status).toBe(403);
  expect(await rebound.text()).toContain(gateway.url);
});

test("a flood of attempts is slowed down", async () => {
  const { begin } = await opened();
  for (let i = 0; i < 20; i++) await begin();
  expect(begin()).rejects.toThrow("Too many attempts");
});

test("what the provider refuses is said, and so is a provider that is gone", async () => {
  const { begin, finish, provider } = await opened();
  const { url, cookie } = await begin();
  const state = new URL(url).searchParams.get("state")!;
  const query = new URLSearchParams({
    error: "access_denied",
    error_description: "you are not assigned",
    state,
    iss: provider.issuer,
  });
  expect(await finish(query.toString(), cookie)).toMatchObject({
    status: 403,
    message: "The sign-in provider refused: you are not assigned",
  });
  await sso.stop();

  sso = await openSso({ config: { oidcIssuer: "http://127.0.0.1:9" } });
  expect(sso.begin()).rejects.toThrow("cannot be reached");
});

test("another instance finishes what one began", async () => {
  const { begin, provider, gateway } = await opened();
  const other = await bootGateway({
    dataDir: gateway.dataDir,
    config: { ...provider.settings(gateway.url), port: 0 },
  });
  try {
    const { url, cookie } = await begin();
    const query = await provider.visit(url, "ada");
    const answer = await fetch(`${other.url}/api/auth/oidc/finish`, {
      method: "POST",
      headers: { "content-type": "application/json", cookie, host: new URL(gateway.url).host },
      body: JSON.stringify({ query }),
    });
    expect(answer.status).toBe(200);
    expect((await sso.finish(query, cookie)).message).toContain("was used before");
  } finally {
    await other.stop();
  }
});
