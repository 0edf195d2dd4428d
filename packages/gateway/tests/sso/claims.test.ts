import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { openSso, type Sso, verified } from "./support.ts";

onEachDatabase("the provider's claims", (fresh) => {
  test("rights and groups follow them at each sign-in", async () => {
    const database = await fresh();
    const sso = await openSso({
      dataDir: database.options.dataDir,
      config: {
        databaseUrl: database.options.databaseUrl,
        oidcAdmin: { claim: "realm_access.roles", value: "gateway-admin" },
        oidcGroupsClaim: "groups",
      },
    });
    try {
      await follow(sso);
    } finally {
      await sso.stop();
      await database.drop();
    }
  });
});

async function follow(sso: Sso): Promise<void> {
  const { rpc, signIn } = sso.gateway;
  const root = await signIn("root");
  const analysts = await rpc("group.create", { name: "Analysts" }, root);
  const writers = await rpc("group.create", { name: "Writers" }, root);
  const outsider = await signIn("mallory");
  // Anyone may call a group by any name; the provider's names must not lead there.
  await rpc("group.create", { name: "Analysts" }, outsider);

  const claims = (roles: string[], groups: unknown) =>
    sso.provider.people.set("ada", verified("ada@example.org", { realm_access: { roles }, groups }));
  claims(["gateway-admin"], ["Analysts", "unknown", 7, { name: "Writers" }]);
  const first = await sso.signIn("ada");
  expect(first.session?.user.is_admin).toBe(true);
  const groupsOf = async (bearer: string) =>
    (await rpc("group.list", {}, bearer)).map(({ id }: { id: string }) => id);
  expect(await groupsOf(first.session!.access_token)).toEqual([analysts.id]);

  claims(["other"], "Writers");
  const later = await sso.signIn("ada");
  expect(later.session?.user.is_admin).toBe(false);
  expect(await groupsOf(later.session!.access_token)).toEqual([writers.id]);
  const admins = await sso.gateway.call("users.list", {}, first.session!.access_token);
  expect(admins.error.code).toBe(-32007);

  // Whom someone added here stays, whatever the provider says.
  await rpc("group.members.add", { group_id: analysts.id, email: "ada@example.org" }, root);
  claims([], []);
  const last = await sso.signIn("ada");
  expect(await groupsOf(last.session!.access_token)).toEqual([analysts.id]);
}
