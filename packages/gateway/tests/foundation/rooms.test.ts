import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { onEachDatabase, openDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { sha256Hex } from "../../src/kernel/ids.ts";

onEachDatabase("rooms", (fresh) => {
  let gateway: TestGateway;
  let admin: string;
  let member: string;
  let drop: () => Promise<void>;
  let options: Awaited<ReturnType<typeof fresh>>["options"];
  beforeAll(async () => {
    ({ options, drop } = await fresh());
    gateway = await bootGateway({ config: options });
    admin = await gateway.signIn("admin");
    member = await gateway.signIn("member");
  });
  afterAll(async () => {
    await gateway.stop();
    await drop();
  });

  test("admin rights given and taken in the database hold soon after", async () => {
    await gateway.signIn("deputy");
    const deputy = await gateway.signIn("deputy");
    const isAdmin = async () => (await gateway.call("system.activity", {}, deputy)).error === undefined;
    const db = await openDatabase(options);
    const grant = (right: boolean) =>
      db.run("UPDATE users SET is_admin = $1 WHERE email = 'deputy@example.com'", [right]);
    expect(await isAdmin()).toBe(false);
    await grant(true);
    await until("the right is seen", isAdmin);
    await grant(false);
    await until("the right is gone", async () => !(await isAdmin()));
    await db.close();
  }, 60_000);

  describe("keys", () => {
    test("the secret is shown once and stored as a hash", async () => {
      const { rpc } = gateway;
      const created = await rpc("keys.create", { name: "laptop", project: "thesis" }, member);
      expect(created).toEqual({
        id: expect.any(String),
        name: "laptop",
        key: expect.stringMatching(/^service-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
        key_prefix: created.key.slice(8, 16),
        project: "thesis",
        group_id: null,
        created_at: expect.any(String),
        capture_until: null,
        expires_at: null,
        monthly_budget_usd: null,
        total_budget_usd: null,
        allowed_models: null,
        requests_per_minute: null,
        tokens_per_minute: null,
      });
      const listed = await rpc("keys.list", {}, member);
      expect(listed[0]).toMatchObject({ id: created.id, active: true, project: "thesis" });
      expect(JSON.stringify(listed)).not.toContain(created.key);
      expect(JSON.stringify(listed)).not.toContain(sha256Hex(created.key));
      const db = await openDatabase(options);
      const stored = JSON.stringify(await db.all("SELECT * FROM api_keys"));
      await db.close();
      expect(stored).toContain(sha256Hex(created.key));
      expect(stored).not.toContain(created.key);
    });

    test("belong to their owner and are revoked at once", async () => {
      const { rpc, call, app } = gateway;
      const created = await rpc("keys.create", { name: "k" }, member);
      expect(created.project).toBe("default");
      expect(await app.rooms.keys.authenticate(created.key)).toMatchObject({
        keyId: created.id,
        project: "default",
      });
      expect((await call("keys.revoke", { key_id: created.id }, admin)).error.code).toBe(-32000);
      expect(await app.rooms.keys.authenticate(created.key)).not.toBeNull();
      expect(await rpc("keys.revoke", { key_id: created.id }, member)).toEqual({ ok: true });
      expect(await app.rooms.keys.authenticate(created.key)).toBeNull();
      const listed = await rpc("keys.list", {}, member);
      expect(listed.find(({ id }: { id: string }) => id === created.id).active).toBe(false);
      expect((await rpc("keys.list", {}, admin)).length).toBe(0);
    });

    test("unknown, malformed and hostile secrets are nobody's", async () => {
      const { keys } = gateway.app.rooms;
      for (const secret of [
        "",
        "service-",
        `service-${crypto.randomUUID()}`,
        "' OR '1'='1",
        ADMIN_TOKEN,
        "service-".padEnd(5000, "x"),
      ]) {
        expect(await keys.authenticate(secret)).toBeNull();
      }
    });

    test("bad input names the field", async () => {
      const cases: [unknown, string][] = [
        [{}, "name"],
        [{ name: "" }, "name"],
        [{ name: "x".repeat(81) }, "name"],
        [{ name: "k", project: 5 }, "project"],
        [{ name: "k", group_id: "nope" }, "group_id"],
      ];
      for (const [params, field] of cases) {
        const { error } = await gateway.call("keys.create", params, member);
        expect([error.code, error.data?.fields]).toEqual([-32602, [field]]);
      }
      expect((await gateway.call("keys.revoke", { key_id: "nope" }, member)).error.code).toBe(-32602);
    });
  });

  describe("providers", () => {
    test("are listed for everyone, and managed by administrators", async () => {
      const { rpc, call } = gateway;
      expect(
        await rpc("providers.add", { id: "lab", name: "Our lab", website_domain: "lab.example" }, admin),
      ).toEqual({ ok: true });
      expect((await call("providers.add", { id: "lab", name: "again" }, admin)).error.message).toContain(
        "exists already",
      );
      expect(await rpc("providers.update", { provider_id: "lab", description: "GPU room" }, admin)).toEqual({
        ok: true,
      });
      const listed = await rpc("providers.list");
      expect(listed.find(({ id }: { id: string }) => id === "lab")).toEqual({
        id: "lab",
        name: "Our lab",
        description: "GPU room",
        website_domain: "lab.example",
        is_official: false,
        is_operator: true,
      });
      expect(listed.find(({ id }: { id: string }) => id === "openai").is_official).toBe(true);
      expect(await rpc("providers.remove", { provider_id: "lab" }, admin)).toEqual({ ok: true });
      expect((await call("providers.remove", { provider_id: "lab" }, admin)).error.code).toBe(-32000);
      expect((await call("providers.update", { provider_id: "lab", name: "x" }, admin)).error.code).toBe(
        -32000,
      );
      expect((await call("providers.update", { provider_id: "openai", name: "x" }, admin)).error.code).toBe(
        -32000,
      );
      expect((await rpc("providers.test", {}, admin)).message).toContain("not implemented");
    });
  });

  describe("conversations", () => {
    test("live with their owner: create, list, get by either name, delete", async () => {
      const { rpc, call, app } = gateway;
      const created = await rpc("conversations.create", {}, member);
      expect(created).toMatchObject({ title: "New Conversation", messages: [] });
      await app.rooms.conversations.append(created.id, [
        { role: "user", content: "hello", images: ["data:,"] },
        { role: "assistant", content: "hi", tool_calls: [{ id: "1" }] },
      ]);
      const listed = await rpc("conversations.list", {}, member);
      expect(listed[0]).toMatchObject({ id: created.id, message_count: 2, updated_ago: "just now" });
      expect(listed[0].user_id).toBeUndefined();
      const got = await rpc("conversations.get", { id: created.id }, member);
      expect(got.messages).toMatchObject([
        { role: "user", content: "hello", images: ["data:,"] },
        { role: "assistant", content: "hi", tool_calls: [{ id: "1" }] },
      ]);
      const other = await rpc("conversations.create", { title: "Other" }, member);
      const both = await rpc("conversations.get", { conversation_id: other.id, id: created.id }, member);
      expect(both.title).toBe("Other");
      for (const params of [{ id: created.id }, { conversation_id: created.id }]) {
        expect((await call("conversations.get", params, admin)).error.code).toBe(-32000);
        expect((await call("conversations.delete", params, admin)).error.code).toBe(-32000);
      }
      const renamed = { conversation_id: other.id, title: "  Plans for May " };
      expect(await rpc("conversations.rename", renamed, member)).toMatchObject({ title: "Plans for May" });
      expect((await rpc("conversations.get", { id: other.id }, member)).title).toBe("Plans for May");
      expect((await call("conversations.rename", renamed, admin)).error.code).toBe(-32000);
      expect((await call("conversations.rename", { ...renamed, title: " " }, member)).error.code).toBe(
        -32602,
      );
      expect((await call("conversations.get", {}, member)).error.data?.fields).toEqual(["conversation_id"]);
      expect((await call("conversations.get", { conversation_id: "' OR 1=1" }, member)).error.code).toBe(
        -32000,
      );
      expect(await rpc("conversations.delete", { id: created.id }, member)).toEqual({ ok: true });
      expect((await call("conversations.get", { id: created.id }, member)).error.code).toBe(-32000);
    });

    test("are taken back to before a message by their owner alone", async () => {
      const { rpc, call, app } = gateway;
      const { id } = await rpc("conversations.create", {}, member);
      const other = await rpc("conversations.create", {}, member);
      for (const [conversation, words] of [
        [id, ["q1", "a1", "q2", "a2"]],
        [other.id, ["elsewhere"]],
      ] as const)
        await app.rooms.conversations.append(
          conversation,
          words.map((content) => ({ role: content.startsWith("a") ? "assistant" : "user", content })),
        );
      const { messages } = await rpc("conversations.get", { id }, member);
      const back = { conversation_id: id, message_id: messages[2].id };
      expect((await call("conversations.rewind", back, admin)).error.code).toBe(-32000);
      const [foreign] = (await rpc("conversations.get", { id: other.id }, member)).messages;
      for (const message_id of [foreign.id, crypto.randomUUID(), "' OR 1=1", ""])
        expect((await call("conversations.rewind", { ...back, message_id }, member)).error.code).toBe(-32000);
      expect((await call("conversations.rewind", { conversation_id: id }, member)).error.code).toBe(-32602);
      expect(await rpc("conversations.rewind", back, member)).toEqual({ removed: 2 });
      await app.rooms.conversations.append(id, [{ role: "user", content: "q2 again" }]);
      const contents = (await app.rooms.conversations.history(id)).map(({ content }) => content);
      expect(contents).toEqual(["q1", "a1", "q2 again"]);
      expect(await app.rooms.conversations.history(other.id)).toHaveLength(1);
    });

    test("concurrent turns keep every message and their order within a turn", async () => {
      const { rpc, app } = gateway;
      const { id } = await rpc("conversations.create", {}, member);
      await Promise.all(
        Array.from({ length: 10 }, (_, i) =>
          app.rooms.conversations.append(id, [
            { role: "user", content: `q${i}` },
            { role: "assistant", content: `a${i}` },
          ]),
        ),
      );
      const contents = (await app.rooms.conversations.history(id)).map(({ content }) => content);
      expect(contents).toHaveLength(20);
      for (let i = 0; i < 10; i++) expect(contents.indexOf(`a${i}`)).toBe(contents.indexOf(`q${i}`) + 1);
    });
  });
});
