import { isoTime } from "../../kernel/clock.ts";
import type { Principal } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { isUuid } from "../../kernel/ids.ts";
import { objectIn } from "../../kernel/json.ts";
import type { Sweep } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import type { Inference } from "../inference/index.ts";
import { type Keys, ownerOf, payerOf } from "../keys/index.ts";
import type { AdmitOptions, MeteringService } from "../metering/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import { type AskedLine, KEPT_BYTES, readLines } from "./check.ts";
import { LineRun } from "./line-call.ts";
import { BatchRunner } from "./runner.ts";
import { type BatchRow, BatchStore, type FileRow, type Line, type ListPage, type Owner } from "./store.ts";

const DAY_MS = 86_400_000;
const WINDOW_MS = DAY_MS;
const KEPT_MS = 30 * DAY_MS;
const MOST_ACTIVE = 20;

export interface BatchesOptions extends Needs<"db" | "bus" | "counter" | "clock" | "ids" | "log" | "leases"> {
  inference: Pick<Inference, "line">;
  keys: Pick<Keys, "principalOf">;
  metering: Pick<
    MeteringService,
    "admit" | "boundOf" | "flush" | "ratesOf" | "record" | "resume" | "tokensPerSecond" | "written"
  >;
}

interface CreateBatch {
  input_file_id: string;
  endpoint: string;
  metadata?: Record<string, string> | null;
}

/** `/v1/files` and `/v1/batches`: many requests in a file, answered when backends are idle. */
export class Batches {
  readonly #store: BatchStore;
  readonly #runner: BatchRunner;
  /** Users whose files are being checked, which takes seconds of work. */
  readonly #creating = new Set<string>();

  constructor(readonly options: BatchesOptions) {
    this.#store = new BatchStore(options.db);
    this.#runner = new BatchRunner(this.#store, options);
  }

  async upload({ userId, keyId }: Principal, filename: string, content: Buffer): Promise<FileRow> {
    await this.#requireRoom(userId, content.length);
    const nowMs = this.options.clock.now();
    const row: FileRow = {
      ...{ id: this.options.ids.uuid(), user_id: userId, key_id: keyId, batch_id: null },
      ...{ purpose: "batch", filename, bytes: content.length },
      ...{ created_at: isoTime(nowMs), expires_at: isoTime(nowMs + KEPT_MS) },
    };
    await this.#store.insertFile(row, content);
    return row;
  }

  async #requireRoom(userId: string, bytes: number): Promise<void> {
    if ((await this.#store.keptBytes(userId)) + bytes > KEPT_BYTES)
      fail("app_error", `Your files have ${KEPT_BYTES} bytes, the most that are kept; delete some`);
  }

  files(owner: Owner, page: ListPage): Promise<FileRow[]> {
    return this.#store.list("files", owner, checked(page));
  }

  async file(owner: Owner, id: string): Promise<FileRow> {
    const row = isUuid(id) ? await this.#store.file(owner, id) : null;
    return row ?? fail("not_found", "No file of yours has this id; it may have expired or been deleted");
  }

  async removeFile(owner: Owner, id: string): Promise<void> {
    await this.#store.removeFile(await this.file(owner, id));
  }

  content(file: FileRow): ReadableStream<Uint8Array> {
    return new Response(this.#store.content(file) as never).body!;
  }

  /** Checks every line and holds what all of them can cost, or throws the refusal. */
  async create(principal: Principal, asked: CreateBatch): Promise<BatchRow> {
    const { userId } = principal;
    if (this.#creating.has(userId))
      fail("rate_limited", "Another of your batches is being checked; wait for it");
    this.#creating.add(userId);
    try {
      return await this.#create(principal, asked);
    } finally {
      this.#creating.delete(userId);
    }
  }

  async #create(principal: Principal, { input_file_id, endpoint, metadata }: CreateBatch): Promise<BatchRow> {
    const { clock, ids, metering } = this.options;
    const { userId, keyId } = principal;
    const file = await this.file(ownerOf(principal), input_file_id);
    if (file.purpose !== "batch")
      fail("invalid_params", "`input_file_id`: must be a file of purpose `batch`");
    await this.#requireRoom(userId, 1);
    if ((await this.#store.countActive(userId)) >= MOST_ACTIVE)
      fail("rate_limited", `You have ${MOST_ACTIVE} batches under way; wait for some to end or cancel them`);
    const payer = payerOf(principal);
    // Tokens per minute limit live requests; a whole batch would never fit into a minute.
    const keyLimits = payer.keyLimits && { ...payer.keyLimits, tokensPerMinute: null };
    const id = ids.uuid();
    const rows: Line[] = [];
    const bound = { nanoUsd: 0, tokens: 0 };
    const check = async (asked: AskedLine) => {
      const { line, customId, body } = asked;
      const most = await this.#boundOf(principal, endpoint, { ...asked, batchId: id });
      if (typeof most === "string") return most;
      rows.push({ line, custom_id: JSON.stringify(customId), body, ...most });
      bound.nanoUsd += most.bound_nano_usd;
      bound.tokens += most.bound_tokens;
      return null;
    };
    const { errors, bytes } = await readLines(this.#store.content(file), endpoint, check);
    const isFailed = errors.length > 0;
    if (!isFailed && bytes < file.bytes)
      fail("not_found", "The file is not whole: it has just been deleted, or is still being uploaded");
    const nowMs = clock.now();
    const now = isoTime(nowMs);
    const batch: BatchRow = {
      ...{ id, user_id: userId, key_id: keyId, payer: JSON.stringify({ ...payer, keyLimits }) },
      ...{ endpoint, input_file_id: file.id, output_file_id: null, error_file_id: null },
      status: isFailed ? "failed" : "in_progress",
      errors: isFailed ? JSON.stringify(errors) : null,
      metadata: metadata ? JSON.stringify(metadata) : null,
      ...{ total: rows.length, completed: 0, failed: 0, cost_nano_usd: 0 },
      ...{ bound_nano_usd: bound.nanoUsd, bound_tokens: bound.tokens },
      ...{ created_at: now, due_at: isoTime(nowMs + WINDOW_MS), cancelling_at: null },
      ended_at: isFailed ? now : null,
      expires_at: isoTime(nowMs + WINDOW_MS + KEPT_MS),
    };
    if (isFailed) {
      await this.#store.insert(batch, []);
      return batch;
    }
    const admission = await metering.admit({
      ...{ requestId: id, payer: { ...payer, keyLimits }, model: "batch", refId: null },
      bound: { costUsd: bound.nanoUsd / NANO_PER_USD, tokens: bound.tokens },
    });
    try {
      await this.#store.insert(batch, rows);
    } catch (error) {
      admission.release();
      throw error;
    }
    this.#runner.begin(id, admission, bound);
    return batch;
  }

  /** What a line can cost, found by sending it through the pipeline up to its hold; a string says why it is refused. */
  async #boundOf(
    principal: Principal,
    endpoint: string,
    asked: AskedLine & { batchId: string },
  ): Promise<Pick<Line, "bound_nano_usd" | "bound_tokens"> | string> {
    const { inference, metering } = this.options;
    const bounds: ReturnType<typeof metering.boundOf>[] = [];
    const admit = (options: AdmitOptions) => {
      bounds.push(metering.boundOf({ ...options, isBatch: true }));
      fail("app_error", "not sent");
    };
    const run = new LineRun({ ...asked, endpoint, principal, inference, admit, isDry: true });
    const { head, body } = await run.answer();
    const found = bounds.at(-1);
    if (found) return { bound_nano_usd: Math.ceil(found.costUsd * NANO_PER_USD), bound_tokens: found.tokens };
    const { error } = (objectIn(String(body)) ?? {}) as { error?: { message?: string } };
    return error?.message ?? `refused with status ${head.status}`;
  }

  async get(owner: Owner, id: string): Promise<BatchRow> {
    const row = isUuid(id) ? await this.#store.find(owner, id) : null;
    return row ?? fail("not_found", "No batch of yours has this id");
  }

  list(owner: Owner, page: ListPage): Promise<BatchRow[]> {
    return this.#store.list("batches", owner, checked(page));
  }

  /** Lines that were sent are waited for; a batch that has ended stays as it is. */
  async cancel(owner: Owner, id: string): Promise<BatchRow> {
    await this.get(owner, id);
    await this.#store.cancel(id, isoTime(this.options.clock.now()));
    this.#runner.wake();
    return this.get(owner, id);
  }

  readonly sweepFiles: Sweep = (...asked) => this.#store.sweepFiles(...asked);
  readonly sweepBatches: Sweep = (...asked) => this.#store.sweepBatches(...asked);

  start(): Promise<void> {
    return this.#runner.start();
  }

  drained(): Promise<void> {
    return this.#runner.drained();
  }

  close(): Promise<void> {
    return this.#runner.stop();
  }
}

function checked(page: ListPage): ListPage {
  if (page.after !== undefined && !isUuid(page.after))
    fail("invalid_params", "`after`: must be an id of the list");
  return page;
}
