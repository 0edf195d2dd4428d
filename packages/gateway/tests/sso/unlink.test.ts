import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { openSso, verified } from "./support.ts";

onEachDatabase("of two ways into an account", (fresh) => {
  test("one stays, also when both are unlinked at once", async () => {
    const { options, drop } = await fresh();
    const { gateway, provider, signIn, stop } = await openSso({
      config: { databaseUrl: options.databaseUrl },
    });
    try {
      await gateway.signIn("root");
      provider.people.set("ada", verified("ada@example.org"));
      const token = (await signIn("ada")).session!.access_token;
      const ways = () => gateway.rpc<{ id: string }[]>("auth.identities.list", {}, token);
      for (let round = 0; round < 5; round++) {
        expect((await signIn(`ada-${round}`, {}, token)).status).toBe(200);
        const unlinked = await Promise.all(
          (await ways()).map(({ id }) => gateway.call("auth.identities.remove", { identity_id: id }, token)),
        );
        expect(unlinked.filter(({ error }) => error).length).toBe(1);
        expect((await ways()).length).toBe(1);
      }
    } finally {
      await stop();
      await drop();
    }
  });
});
