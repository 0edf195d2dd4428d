import { z } from "zod";
import { fail, toRestReply, toServiceError } from "../../../kernel/errors.ts";
import { type AnyRoute, defineRoute, type RefusedCall } from "../../../kernel/route.ts";
import { refusalIn } from "../voices/replies.ts";
import { responses } from "../voices/responses/index.ts";
import type { WholeTurn } from "../voices/responses/request.ts";
import { textPart } from "../voices/responses/speaker.ts";
import { failureOf } from "../voices/voice.ts";

/** In the API's own error form. Not counted as an inference failure, because no model is involved. */
function refuse(error: unknown, { requestId }: RefusedCall) {
  const refusal = toServiceError(error);
  const failure = failureOf(refusal);
  const message = failure.message.trim();
  return refusalIn(responses, toRestReply(refusal, requestId), { ...failure, message });
}

const Items = z.array(z.looseObject({ id: z.string(), type: z.string() }));
const PAGE_ITEMS_MAX = 100;
const COMMON = { auth: "api_key", outsideTierRate: true, refuse } as const;

export const response: AnyRoute = defineRoute({
  method: "GET",
  path: "/v1/responses/{id}",
  summary: "A stored response of yours as it was answered; not as a stream",
  ...COMMON,
  query: z.object({ stream: z.literal("false").optional() }),
  response: z.looseObject({
    id: z.string(),
    object: z.literal("response"),
    status: z.string(),
    output: Items,
  }),
  handler: async ({ rooms, principal, path }) => {
    const { response: stored } = await rooms.inference.responses.get(principal, path.id);
    return stored;
  },
});

export const deleteResponse: AnyRoute = defineRoute({
  method: "DELETE",
  path: "/v1/responses/{id}",
  summary: "Deletes a stored response of yours; a conversation that it is part of stays",
  ...COMMON,
  response: z.object({ id: z.string(), object: z.literal("response"), deleted: z.literal(true) }),
  handler: async ({ rooms, principal, path: { id } }) => {
    await rooms.inference.responses.remove(principal, id);
    return { id, object: "response" as const, deleted: true as const };
  },
});

export const responseInputItems: AnyRoute = defineRoute({
  method: "GET",
  path: "/v1/responses/{id}/input_items",
  summary: "What was sent for a stored response of yours, without what it went on from",
  ...COMMON,
  query: z.object({
    after: z.string().optional().describe("The last item of the page before"),
    limit: z.coerce.number().int().min(1).max(PAGE_ITEMS_MAX).default(20),
    order: z.enum(["asc", "desc"]).default("desc"),
  }),
  response: z.object({
    object: z.literal("list"),
    data: Items,
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  }),
  handler: async ({ rooms, principal, path, query: { after, limit, order } }) => {
    const items = inputItemsOf(await rooms.inference.responses.get(principal, path.id));
    if (order === "desc") items.reverse();
    // The last match: a client may have sent several items with one id, and paging must end.
    const start = after === undefined ? 0 : items.findLastIndex(({ id }) => id === after) + 1;
    // Otherwise a client would get the first page again and again.
    if (after !== undefined && start === 0)
      fail("invalid_params", "`after`: no item of this response has that id");
    const data = items.slice(start, start + limit);
    return {
      object: "list" as const,
      data,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: start + limit < items.length,
    };
  },
});

type InputItem = Record<string, unknown>;

const partsOf = ({ role, content }: InputItem): unknown => {
  if (typeof content !== "string") return content;
  return [role === "assistant" ? textPart(content) : { type: "input_text", text: content }];
};

/** The input of a response, oldest first: unchanged, but each item has an id, and texts are parts. */
function inputItemsOf({ input, response }: WholeTurn): (InputItem & { id: string; type: string })[] {
  const sent = typeof input === "string" ? [{ role: "user", content: input }] : (input as InputItem[]);
  return sent.map((item, i) => {
    const type = item.type ?? "message";
    const id = item.id ?? `item_${response.id.slice("resp_".length)}_${i}`;
    const own = { ...item, id: String(id), type: String(type) };
    return type === "message" ? { status: "completed", ...own, content: partsOf(item) } : own;
  });
}
