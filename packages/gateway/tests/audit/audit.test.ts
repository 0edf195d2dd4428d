import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { freshDatabase, kinds } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway, PASSWORD, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { z } from "zod";
import { leavesEntry } from "../../src/kernel/audit.ts";
import { SourcedCaller } from "../../src/kernel/context.ts";
import { dispatch } from "../../src/kernel/dispatch.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { AnyMethod } from "../../src/kernel/method.ts";
import { Registry } from "../../src/kernel/registry.ts";
import { isAudited } from "../../src/kernel/route.ts";
import { surfaces } from "../../src/rooms/index.ts";
import { openDatabase } from "../../src/storage/index.ts";

const registry = new Registry(surfaces);

describe("what leaves an entry", () => {
  /** Requests to models and what belongs to a chat: their record is the usage row. A refresh is not a new sign-in. */
  const METERED = new Set([
    ...["chat.send", "chat.stop", "realtime.start", "realtime.event", "realtime.stop"],
    ...["video.create", "video.cancel", "conversations.create", "conversations.rename"],
    ...["conversations.rewind", "auth.refresh", "batches.cancel"],
  ]);

  test("every method that is neither a reading one nor a metered one", () => {
    const said = [...registry.methods.values()].filter(({ audit }) => audit === false);
    expect(new Set(said.map(({ name }) => name))).toEqual(METERED);
    const changing =
      /\.(create|add|set|update|delete|remove|revoke|register|allow|deny|import|invite|accept|end)$/;
    for (const method of registry.methods.values())
      if (changing.test(method.name) && !METERED.has(method.name))
        expect({ name: method.name, isThere: leavesEntry(method) }).toEqual({
          name: method.name,
          isThere: true,
        });
  });

  test("every route of administrators that changes something", () => {
    const routes = registry.routes.map((route) => ({
      name: `${route.method} ${route.path}`,
      isAudited: isAudited(route),
    }));
    const audited = routes.filter((route) => route.isAudited).map(({ name }) => name);
    expect(audited.sort()).toEqual([
      "DELETE /api/admin/aliases",
      "DELETE /api/admin/backends",
      "POST /api/admin/aliases",
      "POST /api/admin/backends",
      "POST /api/auth/oidc/link",
    ]);
    expect(routes.map(({ name }) => name)).toContain("POST /api/admin/usage/query");
  });
});

describe.each(kinds)("the audit log on %s", (kind) => {
  let gateway: TestGateway;
  let root: string;
  let databaseUrl: string | null;
  let dataDir: string;
  let drop: () => Promise<void>;
  beforeAll(async () => {
    const fresh = await freshDatabase(kind);
    ({ drop } = fresh);
    ({ databaseUrl } = fresh.options);
    gateway = await bootGateway({ config: { databaseUrl, trustedProxies: ["127.0.0.1"] } });
    ({ dataDir } = gateway);
    root = await gateway.signIn("root");
  });
  afterAll(async () => {
    await gateway.stop();
    await drop();
  });

  const entries = async (filter: Record<string, unknown> = {}) =>
    (await gateway.rpc("audit.list", { limit: 200, ...filter }, root)).entries;
  async function onTables<T>(work: (db: Awaited<ReturnType<typeof openDatabase>>) => Promise<T>): Promise<T> {
    const db = await openDatabase({ dataDir, databaseUrl });
    try {
      return await work(db);
    } finally {
      await db.close();
    }
  }

  test("tells what was before a change, names its target, and has sign-ins that failed", async () => {
    const bob = await gateway.signIn("bob");
    const { id: user_id } = await gateway.rpc("auth.me", {}, bob);
    await gateway.rpc("users.update", { user_id, tier: "pro", disabled: false }, root);
    const [changed] = await entries({ action: "users.update" });
    expect(changed).toMatchObject({ target: user_id, target_name: "bob@example.com" });
    expect(changed.details).toEqual({ user_id, tier: "pro", disabled: false, before: { tier: "free" } });
    const wrong = { email: "bob@example.com", password: "not the password" };
    expect((await gateway.call("auth.login", wrong)).error.code).toBe(-32005);
    const [refused] = await entries({ action: "auth.login refused" });
    expect(refused).toMatchObject({ actor: "anonymous", target: "bob@example.com" });
    expect(JSON.stringify(refused)).not.toContain(wrong.password);
  });

  test("has an entry of every method that is not declared to leave none", async () => {
    // The real definitions around handlers that do nothing, through the real way of a call.
    const stubs = new Registry([
      {
        methods: Object.fromEntries(
          [...registry.methods.values()].map((method): [string, AnyMethod] => [
            method.name,
            {
              ...method,
              params: z.any(),
              result: z.any(),
              handler: () => ({ id: `made by ${method.name}` }),
              notifies: [],
            },
          ]),
        ),
      },
    ]);
    const { userId, email, name } = { ...(await me()), userId: (await me()).id };
    const caller = new SourcedCaller(
      { actor: { userId, email, name, isAdmin: true }, adminToken: false },
      { ip: "192.0.2.7", userAgent: "stub", isLocal: false },
    );
    for (const method of stubs.methods.values()) {
      const adminToken = { ...caller, ip: "192.0.2.7", userAgent: "stub", isLocal: false, adminToken: true };
      const context = {
        caller: method.auth === "admin_token" ? { ...adminToken, actor: null } : caller,
        requestId: crypto.randomUUID(),
        log: silentLog,
        rooms: gateway.app.rooms,
        record: null,
      };
      await dispatch(stubs, { method: method.name, params: {}, context, audit: gateway.app.rooms.audit });
    }
    const found = new Set(
      (await entries({ target: undefined })).map(({ action }: { action: string }) => action),
    );
    for (const method of registry.methods.values())
      expect({ name: method.name, isThere: found.has(method.name) }).toEqual({
        name: method.name,
        isThere: leavesEntry(method),
      });
  });
  const me = () => gateway.rpc("auth.me", {}, root);

  test("says who did what to whom, from where and when", async () => {
    const before = Date.now();
    const ada = await gateway.signIn("ada");
    const { id: adaId } = await gateway.rpc("auth.me", {}, ada);
    const answer = await fetch(`${gateway.url}/api/rpc`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${root}`,
        "x-forwarded-for": "203.0.113.9",
        "user-agent": "a browser",
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "users.update",
        params: { user_id: adaId, tier: "pro" },
      }),
    });
    expect(((await answer.json()) as { result: unknown }).result).toEqual({ ok: true });
    const [entry] = await entries();
    expect(entry).toMatchObject({
      action: "users.update",
      actor: "root@example.com",
      actor_id: (await me()).id,
      target: adaId,
      ip: "203.0.113.9",
      user_agent: "a browser",
      details: { user_id: adaId, tier: "pro" },
    });
    expect(Date.parse(entry.at)).toBeGreaterThanOrEqual(before);
    expect(answer.headers.get("x-request-id")).toBe(entry.request_id);
    const [made] = await entries({ action: "auth.register", actor: "ada@" });
    expect(made).toMatchObject({ actor: "ada@example.com", actor_id: adaId });
    // Machines.
    const alias = await fetch(`${gateway.url}/api/admin/aliases`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ alias: "fast", target: "m" }),
    });
    expect(alias.status).toBe(200);
    expect((await entries())[0]).toMatchObject({
      action: "POST /api/admin/aliases",
      actor: "admin token",
      actor_id: null,
      target: "fast",
      details: { alias: "fast", target: "m" },
    });
    // What was refused changed nothing, and what only reads leaves nothing.
    const count = (await entries()).length;
    await gateway.call("users.update", { user_id: adaId, tier: "none such" }, root);
    await gateway.call("users.update", { user_id: adaId, tier: "pro" }, ada);
    await gateway.call("users.list", {}, root);
    await fetch(`${gateway.url}/api/admin/aliases`, {
      method: "POST",
      headers: { authorization: "Bearer wrong", "content-type": "application/json" },
      body: JSON.stringify({ alias: "x", target: "m" }),
    });
    expect((await entries()).length).toBe(count);
  });

  test("never has a secret", async () => {
    const eve = await gateway.signIn("eve");
    const secrets: string[] = [PASSWORD, eve, root, ADMIN_TOKEN];
    const { key } = await gateway.rpc("keys.create", { name: "k" }, eve);
    const changed = "another password entirely";
    await gateway.rpc("auth.password.set", { current_password: PASSWORD, new_password: changed }, eve);
    const link = await gateway.rpc("users.invite", {}, root);
    const accepted = await gateway.rpc("auth.link.accept", {
      token: link.token,
      password: "a password of the invited",
      email: "invited@example.com",
    });
    const url = "http://name:hunter2@127.0.0.1:1/v1?key=in-the-address";
    await gateway.call(
      "backends.add",
      { type: "external", url, api_key: "sk-upstream-secret", name: "b" },
      root,
    );
    await fetch(`${gateway.url}/api/admin/backends`, {
      method: "POST",
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ type: "external", url, api_key: "sk-upstream-secret", name: "c" }),
    });
    const { id: group_id } = await gateway.rpc(
      "group.create",
      { name: "g", description: "said in private" },
      eve,
    );
    const invite = await gateway.rpc("group.invite.create", { group_id }, eve);
    await gateway.rpc("group.invite.accept", { token: invite.token }, accepted.access_token);
    const agent = await gateway.rpc("agents.register", { machine_name: "n", version: "1" }, root);
    secrets.push(key, changed, link.token, "a password of the invited", accepted.access_token);
    secrets.push(accepted.refresh_token, "hunter2", "in-the-address", "sk-upstream-secret");
    secrets.push("said in private", invite.token, agent.token);
    const rows = await onTables((db) => db.all("SELECT * FROM audit_log"));
    const text = JSON.stringify(rows);
    for (const secret of secrets) expect(text).not.toContain(secret);
    for (const action of ["auth.password.set", "auth.link.accept", "group.invite.accept", "agents.register"])
      expect(text).toContain(action);
    const [set] = await entries({ action: "auth.password.set" });
    expect(set.details).toEqual({
      current_password: "(not recorded)",
      new_password: "(not recorded)",
    });
  });

  test("is for administrators, in pages, by filter", async () => {
    const bob = await gateway.signIn("bob");
    expect((await gateway.call("audit.list", {}, bob)).error.code).toBe(-32007);
    expect((await gateway.call("audit.list", {})).error.code).toBe(-32005);
    for (let i = 0; i < 6; i++) await gateway.rpc("keys.create", { name: `page ${i}` }, bob);
    const { id } = await gateway.rpc("keys.create", { name: "page 6" }, bob);
    expect(await entries({ target: id })).toMatchObject([
      { action: "keys.create", details: { name: "page 6" } },
    ]);
    const names: unknown[] = [];
    let cursor: string | null = null;
    do {
      const page: { entries: { details: { name: string } }[]; next_cursor: string | null } =
        await gateway.rpc(
          "audit.list",
          { limit: 3, actor: "bob@EXAMPLE", action: "keys.", ...(cursor && { cursor }) },
          root,
        );
      expect(page.entries.length).toBeLessThanOrEqual(3);
      names.push(...page.entries.map(({ details }) => details.name));
      cursor = page.next_cursor;
    } while (cursor);
    expect(names).toEqual([6, 5, 4, 3, 2, 1, 0].map((i) => `page ${i}`));
    expect(await entries({ actor: "%" })).toEqual([]);
    expect(await entries({ since: "2100-01-01T00:00:00Z" })).toEqual([]);
    expect((await entries({ until: "2100-01-01T00:00:00+02:00" })).length).toBeGreaterThan(0);
    for (const params of [{ cursor: "x" }, { since: "yesterday" }, { limit: 1.5 }, { actor: "" }])
      expect((await gateway.call("audit.list", params, root)).error.code).toBe(-32602);
  });

  test("cannot be changed, and keeps what is not too old", async () => {
    await onTables(async (db) => {
      const changing = db.run("UPDATE audit_log SET actor = 'someone else'").then(
        () => "done",
        (error) => String(error),
      );
      expect(await changing).toContain("append-only");
      const { audit } = gateway.app.rooms;
      const { n: before } = (await db.get<{ n: number }>("SELECT COUNT(*) AS n FROM audit_log"))!;
      expect(await audit.sweep(Date.now(), 1_000)).toBe(0);
      const yearLaterMs = Date.now() + 366 * 86_400_000;
      expect(await audit.sweep(yearLaterMs, 2)).toBe(2);
      expect(await audit.sweep(yearLaterMs, 1_000)).toBe(before - 2);
    });
  });
});
