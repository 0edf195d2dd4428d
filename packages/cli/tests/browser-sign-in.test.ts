import { afterAll, beforeAll, expect, test } from "bun:test";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { openShell, type Shell } from "./support.ts";

let gateway: TestGateway;
let shell: Shell;
let ada: string;
beforeAll(async () => {
  gateway = await bootGateway();
  await gateway.signIn("root");
  ada = await gateway.signIn("ada");
  shell = openShell({ MODEL_GATEWAY_URL: gateway.url });
});
afterAll(async () => {
  shell.end();
  await gateway.stop();
});

/** The command line, waiting, and what it asks the console for. */
async function begun() {
  const cli = shell.begin(["login", "--browser"]);
  const [, address] = await cli.said(/ {2}(http\S+)\n/);
  const asked = new URL(address!);
  expect(asked.origin + asked.pathname).toBe(`${gateway.url}/cli-sign-in`);
  const { port, challenge, state } = Object.fromEntries(asked.searchParams) as Record<string, string>;
  const home = `http://127.0.0.1:${port}/`;
  const approve = async () => (await gateway.rpc("auth.cli.approve", { challenge }, ada)).code as string;
  const back = (fields: Record<string, string>, init: RequestInit = {}, path = "") =>
    fetch(`${home}${path}?${new URLSearchParams(fields)}`, init);
  return { cli, challenge: challenge!, state: state!, approve, back };
}

test("the code that the browser brings back signs the command line in, and secrets stay out of sight", async () => {
  const { cli, state, approve, back } = await begun();
  const page = await back({ code: await approve(), state });
  expect([page.status, await page.text()]).toEqual([200, expect.stringContaining("Signed in")]);
  const { code, out, err } = await cli.ended;
  expect([code, out]).toEqual([0, `Signed in at ${gateway.url} as ada@example.com\n`]);
  expect(err).toMatch(/the code [0-9A-F]{4}-[0-9A-F]{4}/);
  expect((await shell.run(["keys", "create", "made"])).out).toStartWith("service-");
  const [session] = await gateway.rpc("auth.sessions.list", {}, ada);
  expect(session.user_agent).toMatch(/^model-gateway-cli\/\d/);
});

test("what did not begin here is turned away, and the real answer still counts", async () => {
  const { cli, state, approve, back } = await begun();
  const code = await approve();
  for (const [why, answer] of [
    ["no state", back({ code })],
    ["another state", back({ code, state: `${state}x` })],
    ["another name of this machine", back({ code, state }, { headers: { host: "rebound.example" } })],
    ["another method", back({ code, state }, { method: "POST" })],
    ["another path", back({ code, state }, {}, "favicon.ico")],
  ] as const)
    expect([why, (await answer).status]).toEqual([why, 404]);
  expect((await back({ code, state })).status).toBe(200);
  expect((await cli.ended).code).toBe(0);
});

test("a code for another command line, and a cancelled sign-in, end in an error that says so", async () => {
  const wrong = await begun();
  const { code } = await gateway.rpc(
    "auth.cli.approve",
    { challenge: "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" },
    ada,
  );
  expect((await wrong.back({ code, state: wrong.state })).status).toBe(400);
  expect(await wrong.cli.ended).toMatchObject({ code: 1, err: expect.stringContaining("begun elsewhere") });

  const cancelled = await begun();
  await cancelled.back({ error: "cancelled", state: cancelled.state });
  expect(await cancelled.cli.ended).toMatchObject({
    code: 1,
    err: expect.stringContaining("cancelled in the browser"),
  });
});
