import { StreamedReply, WebSource } from "@model-gateway/wire/http";
import { z } from "zod";
import { fail } from "../../kernel/errors.ts";
import { BODY_BYTES_MAX, defineRoute, raw } from "../../kernel/route.ts";
import { nextTurn } from "../../kernel/turns.ts";
import { isFormType, readForm } from "../inference/index.ts";
import { ownerOf } from "../keys/index.ts";
import { ENDPOINTS } from "./check.ts";
import { Batch, batchIdIn, batchView, File, fileIdIn, fileView, listOf, pageOf } from "./schemas.ts";

const CREATE_BYTES = 128 * 1024;
const Page = z.object({
  after: z.string().optional().describe("The last one of the page before"),
  limit: z.coerce.number().int().min(1).max(100).default(20),
  order: z.enum(["asc", "desc"]).default("desc"),
});
const common = { auth: "api_key", outsideTierRate: true } as const;

export const upload = defineRoute({
  auth: "api_key",
  method: "POST",
  path: "/v1/files",
  summary: "Upload the requests of a batch, one JSON object a line; kept for 30 days",
  body: raw(z.object({ purpose: z.literal("batch"), file: z.string() }), { type: "multipart/form-data" }),
  bodyBytesMax: BODY_BYTES_MAX,
  response: File,
  handler: async ({ rooms, principal, body, request }) => {
    const type = request.header("content-type");
    // Joining the body has used up this turn of the event loop.
    await nextTurn();
    const parts = isFormType(type) ? readForm(body, type) : [];
    const [purpose, second] = parts.filter(({ name }) => name === "purpose");
    if (second || purpose?.value.toString() !== "batch")
      fail("missing_fields", "`purpose`: must be `batch`, once in a multipart form");
    const [content, another] = parts.filter(({ name }) => name === "file");
    if (another || !content?.file) return fail("missing_fields", "`file`: must be one file of the form");
    return fileView(await rooms.batches.upload(principal, content.file.name, content.value));
  },
});

export const files = defineRoute({
  ...common,
  method: "GET",
  path: "/v1/files",
  summary: "Your files",
  query: Page,
  response: listOf(File),
  handler: ({ rooms, principal, query: { after, ...page } }) =>
    pageOf(
      { ...page, after: after && fileIdIn(after) },
      (asked) => rooms.batches.files(ownerOf(principal), asked),
      fileView,
    ),
});

export const file = defineRoute({
  ...common,
  method: "GET",
  path: "/v1/files/{id}",
  summary: "One of your files",
  response: File,
  handler: async ({ rooms, principal, path }) =>
    fileView(await rooms.batches.file(ownerOf(principal), fileIdIn(path.id))),
});

export const fileContent = defineRoute({
  ...common,
  method: "GET",
  path: "/v1/files/{id}/content",
  summary: "What is in one of your files",
  response: raw(z.string(), { type: "application/jsonl" }),
  handler: async ({ rooms, principal, path, requestId }) => {
    const found = await rooms.batches.file(ownerOf(principal), fileIdIn(path.id));
    const head = { status: 200, contentType: "application/jsonl", requestId };
    return new StreamedReply(head, new WebSource(rooms.batches.content(found)));
  },
});

export const deleteFile = defineRoute({
  ...common,
  method: "DELETE",
  path: "/v1/files/{id}",
  summary: "Deletes one of your files; a batch that was made from it goes on",
  response: z.object({ id: z.string(), object: z.literal("file"), deleted: z.literal(true) }),
  handler: async ({ rooms, principal, path: { id } }) => {
    await rooms.batches.removeFile(ownerOf(principal), fileIdIn(id));
    return { id, object: "file" as const, deleted: true as const };
  },
});

export const createBatch = defineRoute({
  auth: "api_key",
  method: "POST",
  path: "/v1/batches",
  summary: "Answer the requests of a file within 24 hours, when backends are idle, at the batch price",
  body: z.object({
    input_file_id: z.string(),
    endpoint: z.enum(ENDPOINTS),
    completion_window: z.literal("24h"),
    metadata: z.record(z.string().max(64), z.string().max(512)).nullish(),
  }),
  bodyBytesMax: CREATE_BYTES,
  response: Batch,
  handler: async ({ rooms, principal, body }) => {
    const input_file_id = fileIdIn(body.input_file_id);
    return batchView(await rooms.batches.create(principal, { ...body, input_file_id }));
  },
});

export const batches = defineRoute({
  ...common,
  method: "GET",
  path: "/v1/batches",
  summary: "Your batches, newest first",
  query: Page.omit({ order: true }),
  response: listOf(Batch),
  handler: ({ rooms, principal, query: { after, limit } }) =>
    pageOf(
      { limit, order: "desc", after: after && batchIdIn(after) },
      (asked) => rooms.batches.list(ownerOf(principal), asked),
      batchView,
    ),
});

export const batch = defineRoute({
  ...common,
  method: "GET",
  path: "/v1/batches/{id}",
  summary: "One of your batches",
  response: Batch,
  handler: async ({ rooms, principal, path }) =>
    batchView(await rooms.batches.get(ownerOf(principal), batchIdIn(path.id))),
});

export const cancelBatch = defineRoute({
  ...common,
  method: "POST",
  path: "/v1/batches/{id}/cancel",
  summary: "Cancel one of your batches; lines that were sent come to their end",
  response: Batch,
  handler: async ({ rooms, principal, path }) =>
    batchView(await rooms.batches.cancel(ownerOf(principal), batchIdIn(path.id))),
});
