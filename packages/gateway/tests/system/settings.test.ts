import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ADMIN_TOKEN, bootGateway, PASSWORD } from "@model-gateway/testing/gateway.ts";

interface Listed {
  name: string;
  value: string | null;
  source: string | null;
}

test("what administrators change is in force at once and after a restart; the environment wins", async () => {
  const config = { fromEnvironment: ["SERVICE_AUDIT_RETENTION_DAYS"], registrationOpen: null };
  const dataDir = mkdtempSync(join(tmpdir(), "gateway-settings-"));
  const boot = () => bootGateway({ config, dataDir });
  const gateway = await boot();
  const first = await gateway.signIn("first");
  const newcomer = (email: string) => gateway.call("auth.register", { email, password: PASSWORD });
  expect((await newcomer("early@example.com")).error?.message).toContain("Registration is closed");

  const change = (name: string, value: string | null) =>
    gateway.call("settings.update", { name, value }, first);
  expect((await change("SERVICE_REGISTRATION_OPEN", "true")).error).toBeUndefined();
  expect((await change("SERVICE_NEW_ACCOUNT_TIER", "pro")).error).toBeUndefined();
  expect((await newcomer("bob@example.com")).error).toBeUndefined();
  const { users } = await gateway.rpc<{ users: { email: string; tier: string }[] }>("users.list", {}, first);
  expect(users.find(({ email }) => email === "bob@example.com")?.tier).toBe("pro");

  const refused = async (name: string, value: string) => (await change(name, value)).error?.message;
  expect(await refused("SERVICE_AUDIT_RETENTION_DAYS", "7")).toContain("environment");
  expect(await refused("SERVICE_NEW_ACCOUNT_TIER", "none-such")).toContain("must be one of");
  expect(await refused("SERVICE_API_RATE_LIMIT_RPM", "0")).toContain("value");
  expect(await refused("SERVICE_JWT_SECRET", "x")).toContain("is not a setting");

  const settings = await gateway.rpc<Listed[]>("settings.list", {}, first);
  const sourceOf = (name: string) => settings.find((each) => each.name === name)?.source;
  expect(sourceOf("SERVICE_REGISTRATION_OPEN")).toBe("console");
  expect(sourceOf("SERVICE_AUDIT_RETENTION_DAYS")).toBe("environment");
  expect(sourceOf("SERVICE_API_RATE_LIMIT_RPM")).toBeNull();
  expect(JSON.stringify(settings)).not.toContain(ADMIN_TOKEN);

  await change("SERVICE_INVITATION_DAYS", "2");
  const { expires_at } = await gateway.rpc("users.invite", {}, first);
  expect(Date.parse(expires_at) - Date.now()).toBeLessThanOrEqual(2 * 86_400_000);

  await gateway.stop();
  const again = await boot();
  expect(await again.app.rooms.accounts.registrationIsOpen()).toBe(true);
  await again.rpc("settings.update", { name: "SERVICE_REGISTRATION_OPEN", value: null }, first);
  expect(await again.app.rooms.accounts.registrationIsOpen()).toBe(false);
  await again.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

test("what is no setting or no value is refused by name, changes nothing, and is for administrators alone", async () => {
  const gateway = await bootGateway({
    config: { registrationOpen: null, fromEnvironment: [] },
    deployment: null,
  });
  const owner = await gateway.signIn("owner");
  const invited = await gateway.rpc("users.invite", {}, owner);
  const account = { email: "member@example.com", password: PASSWORD };
  const { access_token: member } = await gateway.rpc("auth.link.accept", {
    token: invited.token,
    ...account,
  });
  const list = () => gateway.rpc<Listed[]>("settings.list", {}, owner);
  const before = await list();
  const RPM = "SERVICE_API_RATE_LIMIT_RPM";
  const bad: [params: unknown, field: string][] = [
    [{}, "name"],
    [{ name: RPM }, "value"],
    [{ value: "5" }, "name"],
    [{ name: RPM, value: 5 }, "value"],
    [{ name: RPM, value: ["5"] }, "value"],
    [{ name: RPM, value: "" }, "value"],
    [{ name: RPM, value: "-5" }, "value"],
    [{ name: RPM, value: "1e3" }, "value"],
    [{ name: RPM, value: "9".repeat(30) }, "value"],
    [{ name: RPM, value: "9".repeat(300) }, "value"],
    [{ name: RPM.toLowerCase(), value: "5" }, "name"],
    [{ name: "constructor", value: "5" }, "name"],
    [{ name: "S".repeat(100_000), value: "5" }, "name"],
    [{ name: "SERVICE_REGISTRATION_OPEN", value: "perhaps" }, "value"],
    [{ name: "SERVICE_NEW_ACCOUNT_TIER", value: "platinum" }, "value"],
    [{ name: "SERVICE_INVITATION_DAYS", value: "91" }, "value"],
  ];
  for (const [params, field] of bad) {
    const { error } = await gateway.call("settings.update", params, owner);
    expect(error).toMatchObject({ code: -32602, data: { fields: expect.arrayContaining([field]) } });
  }
  // Of a field that stands twice, JSON has the last one.
  const twice = await fetch(`${gateway.url}/api/rpc`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${owner}` },
    body: `{"jsonrpc":"2.0","id":1,"method":"settings.update","params":{"name":"${RPM}","value":"7","value":"-7"}}`,
  });
  expect(await twice.json()).toMatchObject({ error: { data: { fields: ["value"] } } });
  for (const method of ["settings.list", "settings.update", "config.check"])
    for (const bearer of [member, undefined]) {
      const params = { name: RPM, value: "1", configuration: {} };
      expect([-32007, -32005]).toContain((await gateway.call(method, params, bearer)).error?.code);
    }
  expect(await list()).toEqual(before);

  // Two at once leave one of the two, the same everywhere.
  await Promise.all(
    ["11", "12", null, "13"].map((value) => gateway.rpc("settings.update", { name: RPM, value }, owner)),
  );
  const [listed] = (await list()).filter(({ name }) => name === RPM);
  expect(["11", "12", "13", before.find(({ name }) => name === RPM)!.value]).toContain(listed!.value);
  expect(String(gateway.app.rooms.system.settings.list().find(({ name }) => name === RPM)?.value)).toBe(
    listed!.value!,
  );
  await gateway.stop();
});
