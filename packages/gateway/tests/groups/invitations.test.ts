import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ManualClock } from "@model-gateway/testing/clock.ts";
import { kinds, openDatabase } from "@model-gateway/testing/databases.ts";
import { bootOn, emailOf, type GatewayOnDatabase, signInAll } from "./support.ts";

describe.each(kinds)("invitations on %s", (kind) => {
  let gateway: GatewayOnDatabase;
  let people: Record<"root" | "ann" | "ben" | "cai" | "dee", string>;
  const clock = new ManualClock();
  beforeAll(async () => {
    gateway = await bootOn(kind, { clock });
    people = await signInAll(gateway, ["root", "ann", "ben", "cai", "dee"]);
  });
  afterAll(() => gateway.stop());

  async function invited(params: Record<string, unknown> = {}) {
    const { id: group_id } = await gateway.rpc("group.create", { name: "crew" }, people.ann);
    const invitation = await gateway.rpc("group.invite.create", { group_id, ...params }, people.ann);
    return { group_id, ...invitation } as { group_id: string; token: string } & Record<string, unknown>;
  }
  const accept = (token: string, bearer: string) => gateway.call("group.invite.accept", { token }, bearer);
  const memberCount = async (group_id: string) =>
    (await gateway.rpc("group.get", { group_id }, people.ann)).member_count as number;

  test("the token is shown once and kept only as a hash", async () => {
    const invitation = await invited({ role: "admin", email: emailOf("Ben"), max_uses: 2, ttl_secs: 60 });
    expect(invitation).toEqual({
      id: expect.any(String),
      group_id: invitation.group_id,
      token: expect.stringMatching(/^invite-[A-Za-z0-9_-]{43}$/),
      role: "admin",
      email: emailOf("ben"),
      max_uses: 2,
      created_at: expect.any(String),
      expires_at: new Date(clock.nowMs + 60_000).toISOString(),
    });
    const db = await openDatabase(gateway.storage);
    const rows = JSON.stringify(await db.all("SELECT * FROM group_invitations"));
    await db.close();
    expect(rows).not.toContain(invitation.token);
    expect(rows).not.toContain(invitation.token.slice("invite-".length));
    const shown = JSON.stringify([
      await gateway.rpc("group.get", { group_id: invitation.group_id }, people.ann),
      await gateway.rpc("group.list", {}, people.ann),
      await gateway.rpc("group.members.list", { group_id: invitation.group_id }, people.ann),
    ]);
    expect(shown).not.toMatch(/token|hash|password/);
  });

  test("joins with the granted role, once", async () => {
    const { group_id, token } = await invited({ role: "admin" });
    expect((await accept(token, people.ben)).result).toMatchObject({
      id: group_id,
      my_role: "admin",
      member_count: 2,
    });
    // The same person again: nothing changes, nothing is refused.
    expect((await accept(token, people.ben)).result).toMatchObject({
      id: group_id,
      my_role: "admin",
      member_count: 2,
    });
    expect((await accept(token, people.cai)).error).toMatchObject({
      code: -32000,
      message: expect.stringContaining("used up"),
    });
    expect(await memberCount(group_id)).toBe(2);
  });

  test("a member's acceptance takes no use and changes no role", async () => {
    const { group_id, token } = await invited({ role: "admin" });
    await gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), role: "member" }, people.ann);
    expect((await accept(token, people.ben)).result).toMatchObject({ my_role: "member" });
    expect((await accept(token, people.ann)).result).toMatchObject({ my_role: "owner" });
    expect((await accept(token, people.cai)).result).toMatchObject({ my_role: "admin" });
  });

  test("max_uses holds when more people than that come at once", async () => {
    const { group_id, token } = await invited({ max_uses: 2 });
    const answers = await Promise.all(
      [people.ben, people.cai, people.dee, people.root].map((bearer) => accept(token, bearer)),
    );
    expect(answers.filter(({ error }) => !error)).toHaveLength(2);
    expect(await memberCount(group_id)).toBe(3);
  });

  test("expires to the millisecond", async () => {
    const { token } = await invited({ ttl_secs: 60, max_uses: 5 });
    clock.advance(59_999);
    expect((await accept(token, people.ben)).error).toBeUndefined();
    clock.advance(1);
    expect((await accept(token, people.cai)).error.message).toContain("expired");
    expect((await accept(token, people.ben)).error).toBeUndefined();
  });

  test("one for an email is for that account only, and ends when the member is removed", async () => {
    const { group_id, token } = await invited({ email: emailOf("ben"), max_uses: 9 });
    const wrong = await accept(token, people.cai);
    expect(wrong.error.message).toContain("another email address");
    expect(wrong.error.message).not.toContain(emailOf("ben"));
    expect((await accept(token, people.ben)).error).toBeUndefined();
    await gateway.rpc("group.members.remove", { group_id, user_id: emailOf("ben") }, people.ann);
    expect((await accept(token, people.ben)).error.message).toContain("unknown");
  });

  test("does not let a deactivated member back in", async () => {
    const { group_id, token } = await invited({ max_uses: 9 });
    await accept(token, people.ben);
    await gateway.rpc(
      "group.members.update",
      { group_id, user_id: emailOf("ben"), is_active: false },
      people.ann,
    );
    expect((await accept(token, people.ben)).error.message).toContain("deactivated");
    expect(await memberCount(group_id)).toBe(1);
  });

  test("ends with the group; nonsense is refused", async () => {
    const { group_id, token } = await invited();
    await gateway.rpc("group.delete", { group_id }, people.ann);
    expect((await accept(token, people.ben)).error.code).toBe(-32000);
    expect((await accept("invite-nonsense", people.ben)).error.code).toBe(-32000);
    const other = await invited();
    for (const bad of [{ max_uses: 0 }, { ttl_secs: 0 }, { role: "owner" }, { email: "no email" }]) {
      const params = { group_id: other.group_id, ...bad };
      expect((await gateway.call("group.invite.create", params, people.ann)).error.code).toBe(-32602);
    }
  });
});
