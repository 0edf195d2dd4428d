import type { Clock } from "../../kernel/clock.ts";
import { Outage } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import { type Log, redactText } from "../../kernel/log.ts";
import type { RecordSink, RequestRecord } from "../../kernel/request-record.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import { nextTurn } from "../../kernel/turns.ts";
import type { Counter } from "../../observe/metrics.ts";
import { type Block, blocksOf, requestsIn } from "./blocks.ts";
import type { Marks } from "./marks.ts";
import { KNOWN_MAX, Names } from "./names.ts";
import { type Detail, Rows } from "./rows.ts";
import type { RequestStore } from "./store.ts";
import { Sums } from "./sums.ts";
import type { Written } from "./tail.ts";

/** Records that may wait for the database; beyond that new ones are dropped and counted. */
const WAITING_MAX = 20_000;
/** So many are written at once, without waiting for the next second: each write has a price of its own. */
export const BATCH_ROWS = 4_096;
/** So many messages of details become JSON at once: a millisecond or two if they are long. */
const BATCH_MESSAGES = 256;
/** Little enough that writing it takes a millisecond or two. */
const BATCH_BYTES_MAX = 512 * 1_024;
const BATCH_BLOCKS_MAX = 128;
const WRITE_EVERY_MS = 1_000;
/** So few sums are written with the records. */
const FEW_SUMS_MAX = 64;
/**
 * More are gathered: with hundreds of keys most sums of a second would be of one or two requests, and adding one to the
 * database costs several times a record. A crash leaves uncounted what was gathered; lists find those records by their
 * marks. The marks are removed as often.
 */
export const SUMS_EVERY_MS = 20_000;
/** Sums that wait for the database; with more than this, those that it does not take are dropped. */
const SUMS_MAX = 50_000;
const RETRY_AFTER_MS = 2_000;
const MESSAGE_LENGTH_MAX = 500;
const NAME_LENGTH_MAX = 128;

export interface WriterOptions {
  store: Pick<RequestStore, "insert" | "addSums">;
  clock: Clock;
  ids: Pick<Ids, "uuid">;
  log: Log;
  dropped: Counter;
  /** The model that a name stands for, if a backend or route serves it. Other names are the client's invention. */
  knownModel(asked: string): string | null;
  written(written: Written): void;
  /** Called for a request whose prompt is to be kept. */
  captured(record: RequestRecord): void;
}

interface Batch {
  blocks: readonly Block[];
  /** How often the database refused it. */
  refusals: number;
}

/** One facet or one asker. */
type Name = Pick<Parameters<RequestStore["insert"]>[0], "facets" | "askers">;

/** Keeps ended requests until the next write, a bounded number of them: nobody ever waits for it. */
export class RecordWriter implements RecordSink {
  readonly clock: Clock;
  /** What ended since the last blocks were made. */
  readonly #ended = new Rows(BATCH_ROWS);
  /** Of their details: each has one, and one more for each attempt that failed. */
  #endedMessages = 0;
  readonly #waiting: Block[] = [];
  #waitingRows = 0;
  /** Being written; kept when that fails, to be tried again. */
  #batch: Batch | null = null;
  #sums = new Sums();
  /** Sums that met an outage. It is not known whether they were added, so they stay apart from later ones. */
  #unconfirmedSums: Sums | null = null;
  #sumsDueMs = 0;
  /** Names this writer's marks. */
  #markId: string;
  /** Minutes that are certainly marked in the database. */
  readonly #markedMinutes = new Set<number>();
  /** Whether the database may have marks of this writer. */
  #hasMarks = false;
  /** Minutes of records that still wait, though their sums were dropped: their marks are to stay. */
  readonly #unsummedMinutes = new Set<number>();
  #writing: Promise<void> | null = null;
  #retryAtMs = 0;
  readonly #stop: () => void;
  #isScheduled = false;
  #isClosed = false;
  readonly #names = new Names();
  /** Names that are stored apart from records, which they would stop. */
  readonly #namesApart: Name[] = [];

  constructor(readonly options: WriterOptions) {
    this.clock = options.clock;
    this.#markId = options.ids.uuid();
    this.#sumsDueMs = options.clock.elapsed() + SUMS_EVERY_MS;
    this.#stop = options.clock.every(WRITE_EVERY_MS, () => void this.#write({ isAll: true }));
  }

  ended(record: RequestRecord, nowMs: number): void {
    const { captured, dropped, log } = this.options;
    try {
      if (record.seldom.capture) captured(record);
      if (this.#isClosed || this.#waitingRows >= WAITING_MAX) {
        dropped.add();
        return;
      }
      this.#take(record, nowMs);
    } catch (error) {
      // Whoever ends a request has its client's connection to close as well.
      dropped.add();
      log.error("a request could not be recorded", { request_id: record.id, error });
      return;
    }
    if (this.#ended.size < BATCH_ROWS && this.#endedMessages < BATCH_MESSAGES) return;
    this.#makeBlocks();
    if (this.#isScheduled || this.#retryAtMs > 0) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      void this.#write({ isAll: false });
    });
  }

  /** What is needed of a record is taken at once, while the processor has it at hand. */
  #take(record: RequestRecord, nowMs: number): void {
    const { startedMs, firstSentMs, firstTokenMs, modelAsked, route } = record;
    const model = route === null ? modelAsked && this.options.knownModel(modelAsked) : route.model;
    const row = {
      id: record.id,
      askerId: this.#names.askerIdOf(record),
      facetId: this.#names.facetOf(record, model ?? "").id,
      attempts: record.attempts,
      queueMs: firstSentMs === 0 ? 0 : firstSentMs - startedMs,
      firstTokenMs: firstTokenMs === 0 ? null : firstTokenMs - startedMs,
      durationMs: nowMs - startedMs,
      promptTokens: record.promptTokens,
      completionTokens: record.completionTokens,
      costNanoUsd: record.costNanoUsd,
      reason: route === null ? null : route.reason,
      detail: detailOf(record, model),
    };
    this.#ended.add(row, record.status, startedMs);
    if (row.detail !== null) this.#endedMessages += 1 + (row.detail.failed?.length ?? 0);
  }

  #makeBlocks(): void {
    this.#sums.add(this.#ended);
    this.#waiting.push(...blocksOf(this.#ended));
    this.#waitingRows += this.#ended.size;
    this.#ended.clear();
    this.#endedMessages = 0;
  }

  get waitingCount(): number {
    return this.#ended.size + this.#waitingRows + requestsIn(this.#batch?.blocks ?? []);
  }

  /** Writes what waits, as long as the database takes it. */
  #write({ isAll, withSums = false }: { isAll: boolean; withSums?: boolean }): Promise<void> {
    if (this.#retryAtMs > this.clock.elapsed()) return Promise.resolve();
    this.#writing ??= this.#writeBatches(isAll)
      .then(() => this.#writeSums(withSums))
      .finally(() => {
        this.#writing = null;
      });
    return this.#writing;
  }

  /** Few sums are written each time, but their marks stay for the next records until all are due. */
  async #writeSums(isAsked: boolean): Promise<void> {
    if (!(await this.#confirmSums())) return;
    const nowMs = this.clock.elapsed();
    const areAllDue = isAsked || this.#sumsDueMs <= nowMs;
    if (areAllDue && this.#namesApart.length > 0) await this.#storeNames();
    if (areAllDue) this.#sumsDueMs = nowMs + SUMS_EVERY_MS;
    else if (this.#sums.size > FEW_SUMS_MAX) return;
    const isUnmarked = areAllDue && this.#hasMarks;
    if (this.#sums.size === 0 && !isUnmarked) return;
    // Requests that end meanwhile are counted in the next ones.
    const sums = this.#takeSums();
    // Should this fail, whether it was committed is not known.
    if (isUnmarked) this.#markedMinutes.clear();
    if ((await this.#addSums(sums, isUnmarked ? this.#markId : null)) && isUnmarked) this.#hasMarks = false;
  }

  /** Those that met an outage come first. False: it goes on, and later ones wait, as many as may. */
  async #confirmSums(): Promise<boolean> {
    const sums = this.#unconfirmedSums;
    if (!sums) return true;
    this.#unconfirmedSums = null;
    // Marks stay: some may be of later records.
    await this.#addSums(sums, null);
    if (this.#unconfirmedSums === null) return true;
    if (this.#sums.size > SUMS_MAX) this.#leaveMarks(this.#takeSums());
    return false;
  }

  #takeSums(): Sums {
    const sums = this.#sums;
    this.#sums = new Sums();
    return sums;
  }

  async #addSums(sums: Sums, unmarkedId: string | null): Promise<boolean> {
    try {
      await this.options.store.addSums(sums, { unmarkedId });
      return true;
    } catch (error) {
      this.options.log.warn("writing sums of requests failed", { error });
      if (error instanceof Outage && sums.size <= SUMS_MAX) this.#unconfirmedSums = sums;
      // Sums that the database refuses would be refused again. The marks of their records stay.
      else this.#leaveMarks(sums);
      return false;
    }
  }

  #leaveMarks({ minutes }: Sums): void {
    this.#markId = this.options.ids.uuid();
    this.#markedMinutes.clear();
    this.#hasMarks = false;
    if (this.waitingCount > 0) for (const minuteMs of minutes) this.#unsummedMinutes.add(minuteMs);
  }

  /** Full batches; with `isAll` also what waits now. What comes meanwhile is left to become a batch. */
  async #writeBatches(isAll: boolean): Promise<void> {
    if (isAll) this.#makeBlocks();
    let asked = isAll ? this.waitingCount : 0;
    while (asked > 0 || this.#batch || this.#waitingRows >= BATCH_ROWS) {
      const batch = this.#batch ?? { blocks: this.#takeBlocks(), refusals: 0 };
      this.#batch = batch;
      try {
        await this.#store(batch);
        asked -= requestsIn(batch.blocks);
        this.#batch = null;
        this.#retryAtMs = 0;
      } catch (error) {
        this.#failed(batch, error);
        if (this.#batch === null) await this.#storeNames();
        return;
      }
      // Streams go first.
      await nextTurn();
    }
  }

  #takeBlocks(): Block[] {
    let [blocks, bytes] = [0, 0];
    while (blocks < Math.min(this.#waiting.length, BATCH_BLOCKS_MAX) && bytes < BATCH_BYTES_MAX)
      bytes += this.#waiting[blocks++]!.records.length;
    const taken = this.#waiting.splice(0, blocks);
    this.#waitingRows -= requestsIn(taken);
    return taken;
  }

  /** An outage is waited for. What the database refuses twice would stop all that follows, so it is dropped. */
  #failed(batch: Batch, error: unknown): void {
    const { log, dropped } = this.options;
    const requests = requestsIn(batch.blocks);
    if (!(error instanceof Outage)) batch.refusals++;
    if (batch.refusals === 2) {
      log.error("request records could not be written", { error, requests });
      dropped.add(requests);
      this.#batch = null;
    } else log.warn("writing request records failed; will retry", { error });
    this.#retryAtMs = this.clock.elapsed() + RETRY_AFTER_MS;
  }

  /**
   * Later rows need the names of a batch that was given up, too, and one of them may be what the database refuses. So they
   * are stored one by one, and those that it does not take are tried again: it may have been busy only.
   */
  async #storeNames(): Promise<void> {
    const { newFacets, newAskers } = this.#names;
    const names: Name[] = [
      ...newFacets.splice(0).map((facet) => ({ facets: [facet], askers: [] })),
      ...newAskers.splice(0).map((asker) => ({ facets: [], askers: [asker] })),
      ...this.#namesApart.splice(0),
    ].slice(0, KNOWN_MAX);
    for (const [at, name] of names.entries()) {
      try {
        await this.options.store.insert({ blocks: [], ...name });
      } catch (error) {
        const isAway = error instanceof Outage;
        this.#namesApart.push(...names.slice(at, isAway ? undefined : at + 1));
        if (isAway) return;
      }
      // There may be thousands, and SQLite answers at once.
      await nextTurn();
    }
  }

  async #store({ blocks }: Batch): Promise<void> {
    const { store, written } = this.options;
    const { newFacets, newAskers, facetsById, askersById } = this.#names;
    const facets = [...newFacets];
    const askers = [...newAskers];
    const summed = new Set([...this.#sums.minutes, ...(this.#unconfirmedSums?.minutes ?? [])]);
    const minutes = [...summed].filter((minuteMs) => !this.#markedMinutes.has(minuteMs));
    const marks: Marks[] = [];
    if (minutes.length > 0) {
      this.#hasMarks = true;
      marks.push({ writerId: this.#markId, minutes });
    }
    if (this.#unsummedMinutes.size > 0)
      marks.push({ writerId: this.options.ids.uuid(), minutes: [...this.#unsummedMinutes] });
    await store.insert({ blocks, facets, askers, marks });
    for (const minuteMs of minutes) this.#markedMinutes.add(minuteMs);
    this.#unsummedMinutes.clear();
    newFacets.splice(0, facets.length);
    newAskers.splice(0, askers.length);
    written({ blocks, facets: facetsById, askers: askersById });
    this.#names.forgetIfMany();
  }

  /** Resolves when everything so far is in the database, or cannot be for now, or the time is over. */
  async flush(timeoutMs: number): Promise<void> {
    const isAllSummed = this.#sums.size === 0 && this.#unconfirmedSums === null;
    const isAllWritten = this.waitingCount === 0 && isAllSummed && !this.#hasMarks;
    if (isAllWritten && this.#writing === null) return;
    let cancel = () => {};
    const late = new Promise<void>((resolve) => {
      cancel = this.clock.after(timeoutMs, resolve);
    });
    // A write that is under way may have begun before the latest came.
    const written = (this.#writing ?? Promise.resolve()).then(() =>
      this.#write({ isAll: true, withSums: true }),
    );
    await Promise.race([written, late]);
    cancel();
  }

  async close(timeoutMs: number): Promise<void> {
    this.#stop();
    this.#retryAtMs = 0;
    await this.flush(timeoutMs);
    this.#isClosed = true;
    if (this.waitingCount > 0) this.options.dropped.add(this.waitingCount);
  }
}

const name = (text: string): string => text.slice(0, NAME_LENGTH_MAX);
const words = (text: string): string => redactText(hideSecrets(text)).slice(0, MESSAGE_LENGTH_MAX);

function detailOf(record: RequestRecord, model: string | null): Detail | null {
  const { modelAsked, isEstimated, startedMs } = record;
  const { message, failures, refId, clientIp } = record.seldom;
  const isOrdinary =
    message === null && failures === null && refId === null && clientIp === null && !isEstimated;
  if (isOrdinary && (modelAsked === null || modelAsked === model)) return null;
  const detail: Detail = {};
  // A name that stands for no model is any text of the client's, a key perhaps.
  if (modelAsked !== null && modelAsked !== model)
    detail.asked = name(model === null ? words(modelAsked) : modelAsked);
  if (message) detail.message = words(message);
  if (failures)
    detail.failed = failures.map(({ backend, model: tried, sentMs, endedMs, message: why }) => ({
      backend: name(backend),
      model: name(tried),
      from_ms: sentMs - startedMs,
      to_ms: endedMs - startedMs,
      message: words(why),
    }));
  if (refId !== null) detail.ref = refId;
  if (clientIp !== null) detail.ip = clientIp;
  if (isEstimated) detail.estimated = true;
  return detail;
}
