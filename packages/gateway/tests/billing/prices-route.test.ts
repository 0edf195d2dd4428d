import { expect, test } from "bun:test";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";

test("the prices of what can be called now, and plainly none where none is known", async () => {
  const gateway = await bootGateway();
  const upstream = Bun.serve({ port: 0, fetch: () => Response.json({ object: "list", data: [] }) });
  await fetch(`${gateway.url}/api/admin/backends`, {
    method: "POST",
    headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    body: JSON.stringify({
      type: "external",
      url: upstream.url.href,
      models: ["gpt-4o-mini", "our-own-model"],
    }),
  });
  for (
    const deadline = Date.now() + 10_000;
    gateway.app.rooms.routing.modelCount === 0 && Date.now() < deadline;
  ) {
    await Bun.sleep(10);
  }
  expect(await (await fetch(`${gateway.url}/api/prices`)).json()).toEqual({
    prices: [
      { model: "gpt-4o-mini", input: 0.15, output: 0.6, not_billed: false },
      { model: "our-own-model", input: null, output: null, not_billed: false },
    ],
  });
  await gateway.stop();
  await upstream.stop(true);
});
