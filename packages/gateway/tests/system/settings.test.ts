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

  await gateway.stop();
  const again = await boot();
  expect(await again.app.rooms.accounts.registrationIsOpen()).toBe(true);
  await again.rpc("settings.update", { name: "SERVICE_REGISTRATION_OPEN", value: null }, first);
  expect(await again.app.rooms.accounts.registrationIsOpen()).toBe(false);
  await again.stop();
  rmSync(dataDir, { recursive: true, force: true });
});
