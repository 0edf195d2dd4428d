import { z } from "zod";
import { NANO_PER_USD } from "../usage/index.ts";
import type { BatchRow, BatchStatus, FileRow, ListPage } from "./store.ts";

const FILE = "file-";
const BATCH = "batch_";
/** The id without its prefix; empty if it has another one. */
const rest = (id: string, prefix: string): string => (id.startsWith(prefix) ? id.slice(prefix.length) : "");
export const fileIdIn = (id: string): string => rest(id, FILE);
export const batchIdIn = (id: string): string => rest(id, BATCH);

const Seconds = z.int().describe("Unix seconds");
const secondsOf = (at: string | null): number | null =>
  at === null ? null : Math.floor(Date.parse(at) / 1000);

export const File = z.object({
  id: z.string(),
  object: z.literal("file"),
  bytes: z.int(),
  created_at: Seconds,
  expires_at: Seconds,
  filename: z.string(),
  purpose: z.enum(["batch", "batch_output"]),
  status: z.literal("processed"),
});

export const fileView = (row: FileRow): z.input<typeof File> => ({
  ...row,
  id: FILE + row.id,
  object: "file",
  status: "processed",
  created_at: secondsOf(row.created_at)!,
  expires_at: secondsOf(row.expires_at)!,
});

const LineError = z.object({
  code: z.string(),
  message: z.string(),
  line: z.int().nullable(),
  param: z.string().nullable(),
});

const EndedAt = Seconds.nullable();

export const Batch = z.object({
  id: z.string(),
  object: z.literal("batch"),
  endpoint: z.string(),
  errors: z.object({ object: z.literal("list"), data: z.array(LineError) }).nullable(),
  input_file_id: z.string(),
  completion_window: z.literal("24h"),
  status: z.enum(["in_progress", "cancelling", "completed", "failed", "expired", "cancelled"]),
  output_file_id: z.string().nullable(),
  error_file_id: z.string().nullable(),
  created_at: Seconds,
  in_progress_at: EndedAt,
  expires_at: Seconds,
  completed_at: EndedAt,
  failed_at: EndedAt,
  expired_at: EndedAt,
  cancelling_at: EndedAt,
  cancelled_at: EndedAt,
  request_counts: z.object({ total: z.int(), completed: z.int(), failed: z.int() }),
  metadata: z.record(z.string(), z.string()).nullable(),
  cost_usd: z.number().describe("What was charged so far"),
});

export function batchView(row: BatchRow): z.input<typeof Batch> {
  const fileId = (id: string | null) => id && FILE + id;
  const endedAs = (status: BatchStatus) => (row.status === status ? secondsOf(row.ended_at) : null);
  const { status, total, completed, failed } = row;
  return {
    ...row,
    id: BATCH + row.id,
    object: "batch",
    errors: row.errors === null ? null : { object: "list", data: JSON.parse(row.errors) },
    input_file_id: FILE + row.input_file_id,
    completion_window: "24h",
    output_file_id: fileId(row.output_file_id),
    error_file_id: fileId(row.error_file_id),
    created_at: secondsOf(row.created_at)!,
    in_progress_at: status === "failed" ? null : secondsOf(row.created_at),
    expires_at: secondsOf(row.due_at)!,
    completed_at: endedAs("completed"),
    failed_at: endedAs("failed"),
    expired_at: endedAs("expired"),
    cancelling_at: secondsOf(row.cancelling_at),
    cancelled_at: endedAs("cancelled"),
    request_counts: { total, completed, failed },
    metadata: row.metadata === null ? null : JSON.parse(row.metadata),
    cost_usd: row.cost_nano_usd / NANO_PER_USD,
  };
}

export const listOf = <Item extends z.ZodType>(item: Item) =>
  z.object({
    object: z.literal("list"),
    data: z.array(item),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  });

/** A page of rows; reads one more to know whether there are more. */
export async function pageOf<Row, View extends { id: string }>(
  { limit, ...page }: ListPage,
  read: (page: ListPage) => Promise<Row[]>,
  view: (row: Row) => View,
) {
  const rows = await read({ ...page, limit: limit + 1 });
  const data = rows.slice(0, limit).map(view);
  const [first_id, last_id] = [data[0]?.id ?? null, data.at(-1)?.id ?? null];
  return { object: "list" as const, data, first_id, last_id, has_more: rows.length > limit };
}
