import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";
import { Batch, batchIdIn, batchView } from "./schemas.ts";

const SHOWN = 100;

export const list = defineMethod({
  name: "batches.list",
  summary: "Your batches, newest first",
  auth: "jwt",
  result: z.object({ batches: z.array(Batch) }),
  handler: async ({ actor: { userId }, rooms }) => {
    const rows = await rooms.batches.list({ userId, keyId: null }, { limit: SHOWN, order: "desc" });
    return { batches: rows.map(batchView) };
  },
});

export const cancel = defineMethod({
  name: "batches.cancel",
  summary: "Cancel one of your batches; lines that were sent come to their end",
  auth: "jwt",
  audit: false,
  params: z.object({ batch_id: z.string().max(64) }),
  result: Batch,
  handler: async ({ params, actor: { userId }, rooms }) =>
    batchView(await rooms.batches.cancel({ userId, keyId: null }, batchIdIn(params.batch_id))),
});
