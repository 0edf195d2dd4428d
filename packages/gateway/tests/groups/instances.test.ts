import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { freshDatabase, type TestDatabase } from "@model-gateway/testing/databases.ts";
import { bootGateway, type TestGateway } from "@model-gateway/testing/gateway.ts";
import { until } from "@model-gateway/testing/until.ts";
import { emailOf, keyWorks, signInAll } from "./support.ts";

const redisUrl = process.env.TEST_REDIS_URL;
const postgres = process.env.TEST_POSTGRES_URL;
/** Wrong codes are counted, and all of these come from one address. */
const REFUSED = /redeemed before|Too many attempts/;

describe.if(redisUrl !== undefined && postgres !== undefined)(
  "two instances on one Postgres and one Redis",
  () => {
    let database: TestDatabase;
    let here: TestGateway;
    let there: TestGateway;
    let people: Record<"root" | "ann" | "ben", string>;

    beforeAll(async () => {
      database = await freshDatabase("postgres");
      const jwtSecret = "a secret that both instances share, long";
      const config = { databaseUrl: database.options.databaseUrl, redisUrl: redisUrl!, jwtSecret };
      here = await bootGateway({ config });
      there = await bootGateway({ config });
      people = await signInAll(here, ["root", "ann", "ben"]);
    });
    afterAll(async () => {
      await here.stop();
      await there.stop();
      await database.drop();
    });

    test("a deactivated member's group key stops on the other one too, and a balance follows", async () => {
      const { id: group_id } = await here.rpc("group.create", { name: "crew" }, people.ann);
      await here.rpc("group.members.add", { group_id, email: emailOf("ben") }, people.ann);
      const { key } = await here.rpc("keys.create", { name: "k", group_id }, people.ben);
      await until("the key works there", () => keyWorks(there, key));

      const pool = { type: "group", id: group_id } as const;
      const { balances } = there.app.rooms.ledger;
      expect(await balances.load(pool)).toMatchObject({ balance: 0, everCredited: false });
      await here.rpc("group.credits.topup", { group_id, points: 25 }, people.root);
      await until("the pool's balance is known there", () => balances.peek(pool)?.balance === 25);

      const setActive = (is_active: boolean) =>
        here.rpc("group.members.update", { group_id, user_id: emailOf("ben"), is_active }, people.ann);
      await setActive(false);
      await until("the key is refused there", async () => !(await keyWorks(there, key)));
      await setActive(true);
      await until("the key works there again", () => keyWorks(there, key));
    });

    test("codes are redeemed while their maker loses the right: each or none, and nobody waits for the other", async () => {
      const { id: user_id } = await here.rpc("auth.me", {}, people.ann);
      const rights = (is_admin: boolean) => there.call("users.update", { user_id, is_admin }, people.root);
      const before = (await here.rpc("ledger.self", {}, people.ben)).balance;
      let given = 0;
      for (let round = 0; round < 5; round++) {
        await rights(true);
        const { codes } = await there.rpc("codes.create", { count: 4, points: 2 }, people.ann);
        const tries = (codes as string[]).map((code) => here.call("codes.redeem", { code }, people.ben));
        const [demoted, ...answers] = await Promise.all([rights(false), ...tries]);
        expect(demoted.error).toBeUndefined();
        for (const { error } of answers)
          if (error) expect(error.message).toMatch(REFUSED);
          else given += 2;
      }
      expect((await here.rpc("ledger.self", {}, people.ben)).balance).toBe(before + given);
    });

    test("a code that is redeemed on both at once gives its points once", async () => {
      const points = async () => {
        const wallets = [people.ann, people.ben].map((bearer) => here.rpc("ledger.self", {}, bearer));
        return (await Promise.all(wallets)).reduce((sum, { balance }) => sum + balance, 0);
      };
      const before = await points();
      const { codes } = await here.rpc("codes.create", { count: 5, points: 3 }, people.root);
      const tries = (codes as string[]).flatMap((code) =>
        [here, there].flatMap((on) =>
          [people.ann, people.ben].map((bearer) => on.call("codes.redeem", { code }, bearer)),
        ),
      );
      const errors = (await Promise.all(tries)).flatMap(({ error }) => error?.message ?? []);
      expect(errors).toEqual(Array(15).fill(expect.stringMatching(REFUSED)));
      expect(await points()).toBe(before + 15);
    });
  },
);
