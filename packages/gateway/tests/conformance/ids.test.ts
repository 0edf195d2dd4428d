import { expect, test } from "bun:test";
import { onEachDatabase } from "@model-gateway/testing/databases.ts";
import { ADMIN_TOKEN, bootGateway } from "@model-gateway/testing/gateway.ts";
import { startUpstream } from "@model-gateway/testing/upstream.ts";
import { startMinimax } from "@model-gateway/testing/video.ts";

onEachDatabase("ids in capital letters", (fresh) => {
  test("name the same conversations, jobs, groups and keys", async () => {
    const { options, drop } = await fresh();
    const upstream = startUpstream();
    const videos = startMinimax();
    const gateway = await bootGateway({ config: options, dataDir: options.dataDir });
    try {
      const admin = (body: object) =>
        fetch(`${gateway.url}/api/admin/backends`, {
          method: "POST",
          headers: { authorization: `Bearer ${ADMIN_TOKEN}`, "content-type": "application/json" },
          body: JSON.stringify(body),
        });
      await admin({ type: "external", name: "up", url: `${upstream.url}/v1` });
      await admin({ type: "minimax", name: "clips", url: videos.url, api_key: "sk", models: ["clip"] });
      const { rooms } = gateway.app;
      const ready = () =>
        ["m", "clip"].every((id) => rooms.routing.router.routableModels().some((m) => m.id === id));
      for (const deadline = Date.now() + 20_000; !ready(); await Bun.sleep(20))
        if (Date.now() > deadline) throw new Error("the backends are not routable");
      const token = await gateway.signIn("ada");
      const call = <T>(method: string, params: object) => gateway.rpc<T>(method, params, token);
      const loud = (id: string) => id.toUpperCase();

      const { id: conversation } = await call<{ id: string }>("conversations.create", {});
      const { key, id: keyId } = await call<{ key: string; id: string }>("keys.create", { name: "k" });
      const rest = (path: string, init: RequestInit = {}) =>
        fetch(gateway.url + path, { ...init, headers: { authorization: `Bearer ${key}` } });
      const chat = await rest("/v1/chat/completions", {
        method: "POST",
        body: JSON.stringify({
          model: "m",
          conversation_id: loud(conversation),
          messages: [{ role: "user", content: "hi" }],
        }),
      });
      expect(chat.status).toBe(200);
      await chat.text();
      const read = await call<{ id: string; messages: unknown[] }>("conversations.get", {
        conversation_id: loud(conversation),
      });
      expect([read.id, read.messages.length]).toEqual([conversation, 2]);
      await call("conversations.delete", { conversation_id: loud(conversation) });
      expect(await call<unknown[]>("conversations.list", {})).toEqual([]);

      const { job_id } = await call<{ job_id: string }>("video.create", { model: "clip", prompt: "p" });
      expect((await call<{ job_id: string }>("video.get", { job_id: loud(job_id) })).job_id).toBe(job_id);
      expect((await rest(`/v1/video/generations/${loud(job_id)}`)).status).toBe(200);
      await call("video.cancel", { job_id: loud(job_id) });

      const { id: group } = await call<{ id: string }>("group.create", { name: "g" });
      expect((await call<{ id: string }>("group.get", { group_id: loud(group) })).id).toBe(group);
      await call("keys.revoke", { key_id: loud(keyId) });
      expect((await rest(`/v1/video/generations/${job_id}`)).status).toBe(401);
    } finally {
      await gateway.stop();
      upstream.stop();
      videos.stop();
      await drop();
    }
  });
});
