/** What a link gives is decided when it is used, by what its maker may give then. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { PASSWORD } from "@model-gateway/testing/gateway.ts";
import { bootOn, emailOf, type GatewayOnDatabase, signInAll } from "./support.ts";

onEachDatabase("makers of links", (_, kind) => {
  let gateway: GatewayOnDatabase;
  let people: Record<"root" | "ann" | "ben" | "cai", string>;
  beforeEach(async () => {
    gateway = await bootOn(kind);
    people = await signInAll(gateway, ["root", "ann", "ben", "cai"]);
  });
  afterEach(() => gateway.stop());

  const idOf = async (bearer: string): Promise<string> => (await gateway.rpc("auth.me", {}, bearer)).id;
  const update = (user_id: string, patch: object) =>
    gateway.rpc("users.update", { user_id, ...patch }, people.root);
  const sql = (text: string, id: string) => gateway.app.rooms.accounts.options.db.run(text, [id]);
  const setOptions = (options: { registrationOpen: null; memberInvitationsRegister?: boolean }) =>
    Object.assign(gateway.app.rooms.accounts.options.signUp, options);

  /** A group of ann's in which ben is an admin, and an invitation that he made. */
  async function invitedByBen() {
    const { id: group_id } = await gateway.rpc("group.create", { name: "lab" }, people.ann);
    await gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), role: "admin" }, people.ann);
    const made = await gateway.rpc(
      "group.invite.create",
      { group_id, role: "admin", max_uses: 1_000, ttl_secs: 365 * 86_400 },
      people.ben,
    );
    return { group_id, token: made.token as string };
  }
  const accept = (token: string, bearer: string) => gateway.call("group.invite.accept", { token }, bearer);
  const register = (token: string, email: string) =>
    gateway.call("group.invite.register", { token, email, password: PASSWORD });

  const LOSSES: Record<string, (group_id: string, ben: string) => Promise<unknown>> = {
    removed: (group_id, user_id) => gateway.rpc("group.members.remove", { group_id, user_id }, people.ann),
    deactivated: (group_id, user_id) =>
      gateway.rpc("group.members.update", { group_id, user_id, is_active: false }, people.ann),
    demoted: (group_id, user_id) =>
      gateway.rpc("group.members.update", { group_id, user_id, role: "member" }, people.ann),
    disabled: (_group, ben) => update(ben, { disabled: true }),
    "demoted in the database": (_group, ben) =>
      sql("UPDATE group_members SET role = 'member' WHERE user_id = $1", ben),
  };

  test("an invitation ends when its maker is no longer an admin of the group", async () => {
    const ben = await idOf(people.ben);
    for (const [how, lose] of Object.entries(LOSSES)) {
      const { group_id, token } = await invitedByBen();
      await gateway.rpc("group.invite.show", { token });
      await lose(group_id, ben);
      const refusals = [
        await accept(token, people.cai),
        await register(token, `${how.length}@example.com`),
        await gateway.call("group.invite.show", { token }),
      ];
      expect([how, refusals.map(({ error }) => error?.message)]).toEqual([
        how,
        Array(3).fill(expect.stringContaining("unknown, expired, used up")),
      ]);
      if (how === "removed") expect((await accept(token, people.ben)).error?.message).toContain("unknown");
      const { members } = await gateway.rpc("group.get", { group_id }, people.ann);
      expect(members.filter(({ role }: { role: string }) => role === "admin").length).toBeLessThan(3);
      await update(ben, { disabled: false });
      people.ben = await gateway.signIn("ben");
    }
    expect((await gateway.rpc("users.list", {}, people.root)).total).toBe(4);
  });

  test("and does not come back with the right", async () => {
    const { group_id, token } = await invitedByBen();
    const user_id = await idOf(people.ben);
    const listed = () => gateway.rpc("group.invite.list", { group_id }, people.ann);
    expect(await listed()).toHaveLength(1);
    await gateway.rpc("group.members.remove", { group_id, user_id }, people.ann);
    expect(await listed()).toEqual([]);
    await gateway.rpc("group.members.add", { group_id, email: emailOf("ben"), role: "admin" }, people.ann);
    expect((await accept(token, people.cai)).error?.message).toContain("unknown");
    // One that he makes now works.
    const { token: fresh } = await gateway.rpc("group.invite.create", { group_id }, people.ben);
    expect((await accept(fresh, people.cai)).result).toMatchObject({ id: group_id });
  });

  test("an administrator's invitation to a group of others ends with the rights over the platform", async () => {
    await update(await idOf(people.ben), { is_admin: true });
    const { id: group_id } = await gateway.rpc("group.create", { name: "lab" }, people.ann);
    const { id: own_id } = await gateway.rpc("group.create", { name: "own" }, people.ben);
    const invite = (id: string) =>
      gateway.rpc("group.invite.create", { group_id: id, max_uses: 9 }, people.ben);
    const [theirs, own] = [await invite(group_id), await invite(own_id)];
    setOptions({ registrationOpen: null });
    expect((await register(own.token, "first@example.com")).error).toBeUndefined();
    await update(await idOf(people.ben), { is_admin: false });
    expect((await accept(theirs.token, people.cai)).error?.message).toContain("unknown");
    // In the group of his own he may still invite people who have an account, but nobody else.
    expect((await register(own.token, "second@example.com")).error?.message).toContain("have an account");
    expect((await accept(own.token, people.cai)).error).toBeUndefined();
  });

  test("links to passwords and accounts end with the administrator's right", async () => {
    const losses = {
      demoted: (user_id: string) => update(user_id, { is_admin: false }),
      disabled: (user_id: string) => update(user_id, { disabled: true }),
      "demoted in the database": (id: string) => sql("UPDATE users SET is_admin = FALSE WHERE id = $1", id),
    };
    const ben = await idOf(people.ben);
    const ann = await idOf(people.ann);
    for (const [how, lose] of Object.entries(losses)) {
      await update(ben, { is_admin: true, disabled: false });
      await update(ann, { is_admin: true });
      people.ben = await gateway.signIn("ben");
      const email = `${how.replaceAll(" ", "-")}@example.com`;
      const links = {
        reset: (await gateway.rpc("users.password.reset", { user_id: ann }, people.ben)).token,
        created: (await gateway.rpc("users.create", { email, is_admin: true }, people.ben)).link.token,
        invited: (await gateway.rpc("users.invite", { tier: "enterprise" }, people.ben)).token,
      };
      await lose(ben);
      for (const [what, token] of Object.entries(links)) {
        const account = what === "invited" ? { email: `new-${email}` } : {};
        const given = { token, password: "mallory's own password", ...account };
        expect([how, what, (await gateway.call("auth.link.accept", given)).error?.message]).toEqual([
          how,
          what,
          expect.stringContaining("unknown, expired"),
        ]);
        expect((await gateway.call("auth.link.show", { token })).error).toBeDefined();
      }
      if (how !== "demoted in the database")
        expect(await gateway.rpc("users.links.list", {}, people.root)).toEqual([]);
    }
    for (const email of [emailOf("ann"), "demoted@example.com", "new-demoted@example.com"])
      expect(
        (await gateway.call("auth.login", { email, password: "mallory's own password" })).error,
      ).toBeDefined();
  });

  /** Answers of calls that begin before ben's account changes hands, and end after it. */
  async function whileTakenOver(calls: () => ReturnType<GatewayOnDatabase["call"]>[]) {
    const { accounts } = gateway.app.rooms;
    const ben = await idOf(people.ben);
    const [isTaken, isEnough] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const taking = accounts.options.db.transaction(async (tx) => {
      await accounts.takeOver(tx, ben);
      isTaken.resolve();
      await isEnough.promise;
    });
    await isTaken.promise;
    const answers = calls();
    // They are let in, since nothing of it is known yet, and wait for the transaction.
    await Bun.sleep(500);
    isEnough.resolve();
    await taking;
    return (await Promise.all(answers)).map(({ error }) => error?.code);
  }

  test("nothing is made by a session that ends while it is being made", async () => {
    await update(await idOf(people.ben), { is_admin: true });
    const { id: group_id } = await gateway.rpc("group.create", { name: "lab" }, people.ben);
    const verifier = "a-verifier-that-the-command-line-keeps-for-itself";
    const challenge = new Bun.CryptoHasher("sha256").update(verifier).digest("base64url");
    const { code } = await gateway.rpc("auth.cli.approve", { challenge }, people.ben);
    const codes = await whileTakenOver(() => [
      gateway.call("auth.cli.redeem", { code, verifier }),
      gateway.call("keys.create", { name: "mine" }, people.ben),
      gateway.call("group.invite.create", { group_id }, people.ben),
      gateway.call("users.invite", { tier: "enterprise" }, people.ben),
      gateway.call("users.create", { email: "new@example.com", is_admin: true }, people.ben),
    ]);
    expect(codes).toEqual(Array(5).fill(-32005));
    expect(await gateway.rpc("users.links.list", {}, people.root)).toEqual([]);
    expect((await gateway.rpc("users.list", { search: "ben" }, people.root)).users).toMatchObject([
      { active_keys: 0, email_verified: true },
    ]);
  });

  test("a password that ends while it is checked signs nobody in, and sets no other", async () => {
    const login = (password: string) => gateway.call("auth.login", { email: emailOf("ben"), password });
    const change = { current_password: PASSWORD, new_password: "another good password" };
    const codes = await whileTakenOver(() => [
      login(PASSWORD),
      gateway.call("auth.password.set", change, people.ben),
    ]);
    expect(codes).toEqual([-32005, -32602]);
    expect((await login(change.new_password)).error.code).toBe(-32005);
  });

  test("members' invitations let in people who have an account, and register nobody unless the operator allows it", async () => {
    setOptions({ registrationOpen: null });
    const { group_id, token } = await invitedByBen();
    expect(await gateway.rpc("group.invite.show", { token })).toMatchObject({ registers: false });
    expect((await register(token, "new@example.com")).error?.message).toContain("have an account");
    expect((await gateway.rpc("users.list", {}, people.root)).total).toBe(4);
    expect((await accept(token, people.cai)).result).toMatchObject({ id: group_id, my_role: "admin" });

    setOptions({ registrationOpen: null, memberInvitationsRegister: true });
    expect(await gateway.rpc("group.invite.show", { token })).toMatchObject({ registers: true });
    const { result } = await register(token, "new@example.com");
    expect((await gateway.rpc("group.get", { group_id }, result.access_token)).my_role).toBe("admin");
    // It does not let a member do what is an administrator's.
    expect((await gateway.call("users.invite", {}, people.ben)).error?.code).toBe(-32007);
  });
});
