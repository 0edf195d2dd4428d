import type { Clock } from "../../kernel/clock.ts";
import { Outage } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import { type Log, redactText } from "../../kernel/log.ts";
import type { RecordSink, RequestRecord } from "../../kernel/request-record.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import { nextTurn } from "../../kernel/turns.ts";
import type { Counter } from "../../observe/metrics.ts";
import { type Block, Blocks, requestsIn } from "./blocks.ts";
import {
  type Asker,
  type Detail,
  type Facet,
  numberFor,
  type RecordRow,
  storedRow,
  timeOfId,
} from "./rows.ts";
import type { RequestStore } from "./store.ts";
import { Sums } from "./sums.ts";
import type { Written } from "./tail.ts";

/** Records that may wait for the database; beyond that new ones are dropped and counted. */
const WAITING_MAX = 20_000;
/** So many are written at once, without waiting for the next second. */
const BATCH_ROWS = 1_000;
/** Few enough that writing them takes a millisecond or two. */
const BATCH_BLOCKS_MAX = 128;
/**
 * Ended requests that become rows together. One after the other would cost more, and each that waits longer survives a
 * garbage collection, which costs more than the row.
 */
const CONVERTED_TOGETHER = 32;
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
/** Facets, and askers, that are remembered. */
const KNOWN_MAX = 50_000;
const MESSAGE_LENGTH_MAX = 500;
const NAME_LENGTH_MAX = 128;

export interface WriterOptions {
  store: Pick<RequestStore, "insert" | "addSums">;
  clock: Clock;
  ids: Pick<Ids, "uuid">;
  log: Log;
  dropped: Counter;
  costNanoUsd(model: string, tokens: { promptTokens: number; completionTokens: number }): number | null;
  /** The model that a name stands for, if a backend or route serves it. Other names are the client's invention. */
  knownModel(asked: string): string | null;
  written(written: Written): void;
  /** Called for a request whose prompt is to be kept. */
  captured(record: RequestRecord): void;
}

interface Batch {
  blocks: readonly Block[];
  /** Whether an attempt to write it failed, of which nobody knows if it was committed. */
  mayExist: boolean;
}

/** The number of an asker or facet as text, which every record of it needs. */
type Numbered<T> = T & { idText: string };

/** Keeps ended requests until the next write, a bounded number of them: nobody ever waits for it. */
export class RecordWriter implements RecordSink {
  readonly clock: Clock;
  readonly #ended: RequestRecord[] = [];
  readonly #waiting = new Blocks();
  /** Being written; kept when that fails, to be tried again. */
  #batch: Batch | null = null;
  #sums = new Sums();
  #sumsDueMs = 0;
  /** Names this writer's marks. */
  #markId: string;
  /** Minutes that are certainly marked in the database. */
  readonly #markedMinutes = new Set<number>();
  /** Whether the database may have marks of this writer. */
  #hasMarks = false;
  #writing: Promise<void> | null = null;
  #retryAtMs = 0;
  readonly #stop: () => void;
  #isScheduled = false;
  #isClosed = false;
  /** By model: a text of everything would have to be made for every request. */
  readonly #facets = new Map<string, Numbered<Facet>[]>();
  readonly #facetsById = new Map<number, Facet>();
  readonly #askers = new Map<string, Numbered<Asker>>();
  readonly #askersById = new Map<number, Asker>();
  /** Not in the database yet, as far as is known here. */
  readonly #newFacets: Facet[] = [];
  readonly #newAskers: Asker[] = [];

  constructor(readonly options: WriterOptions) {
    this.clock = options.clock;
    this.#markId = options.ids.uuid();
    this.#sumsDueMs = options.clock.now() + SUMS_EVERY_MS;
    this.#stop = options.clock.every(WRITE_EVERY_MS, () => void this.#write({ isAll: true }));
  }

  ended(record: RequestRecord): void {
    if (record.capture) this.options.captured(record);
    if (this.#isClosed || this.#waiting.size >= WAITING_MAX) {
      this.options.dropped.add();
      return;
    }
    if (this.#ended.push(record) < CONVERTED_TOGETHER) return;
    this.#convert();
    if (this.#waiting.size < BATCH_ROWS || this.#isScheduled || this.#retryAtMs > 0) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      void this.#write({ isAll: false });
    });
  }

  #convert(): void {
    for (const record of this.#ended) {
      const model = record.model ?? (record.modelAsked && this.options.knownModel(record.modelAsked));
      const asker = this.#askerOf(record);
      const facet = this.#facetOf(record, model ?? "");
      const row = this.#rowOf(record, { model, askerId: asker.id, facetId: facet.id });
      this.#sums.add(row);
      this.#waiting.add(storedRow(row, asker.idText, facet.idText));
    }
    this.#ended.length = 0;
  }

  get waitingCount(): number {
    return this.#ended.length + this.#waiting.size + requestsIn(this.#batch?.blocks ?? []);
  }

  /** Writes what waits, as long as the database takes it. */
  #write({ isAll, withSums = false }: { isAll: boolean; withSums?: boolean }): Promise<void> {
    if (this.#retryAtMs > this.clock.now()) return Promise.resolve();
    this.#writing ??= this.#writeBatches(isAll)
      .then(() => this.#writeSums(withSums))
      .finally(() => {
        this.#writing = null;
      });
    return this.#writing;
  }

  /** Few sums are written each time, but their marks stay for the next records until all are due. */
  async #writeSums(isAsked: boolean): Promise<void> {
    const areAllDue = isAsked || this.#sumsDueMs <= this.clock.now();
    if (areAllDue) this.#sumsDueMs = this.clock.now() + SUMS_EVERY_MS;
    else if (this.#sums.size > FEW_SUMS_MAX) return;
    const isUnmarked = areAllDue && this.#hasMarks;
    if (this.#sums.size === 0 && !isUnmarked) return;
    // Requests that end meanwhile are counted in the next ones.
    const sums = this.#sums;
    this.#sums = new Sums();
    // Should this fail, whether it was committed is not known.
    if (isUnmarked) this.#markedMinutes.clear();
    try {
      await this.options.store.addSums(sums, { unmarkedId: isUnmarked ? this.#markId : null });
      if (isUnmarked) this.#hasMarks = false;
    } catch (error) {
      this.options.log.warn("writing sums of requests failed", { error });
      if (error instanceof Outage && sums.size <= SUMS_MAX) this.#sums.addAll(sums);
      // Sums that the database refuses would be refused again. The marks of their records stay.
      else this.#leaveMarks();
    }
  }

  #leaveMarks(): void {
    this.#markId = this.options.ids.uuid();
    this.#markedMinutes.clear();
    this.#hasMarks = false;
  }

  /** Full batches; with `isAll` also what waits now. What comes meanwhile is left to become a batch. */
  async #writeBatches(isAll: boolean): Promise<void> {
    if (isAll) this.#convert();
    let asked = isAll ? this.waitingCount : 0;
    while (asked > 0 || this.#batch || this.#waiting.size >= BATCH_ROWS) {
      const batch = this.#batch ?? { blocks: this.#waiting.take(BATCH_BLOCKS_MAX), mayExist: false };
      this.#batch = batch;
      try {
        await this.#store(batch);
        asked -= requestsIn(batch.blocks);
        this.#batch = null;
        this.#retryAtMs = 0;
      } catch (error) {
        this.#failed(batch, error);
        return;
      }
      // Streams go first.
      await nextTurn();
    }
  }

  /** An outage is waited for. What the database refuses twice would stop all that follows, so it is dropped. */
  #failed(batch: Batch, error: unknown): void {
    const { log, dropped } = this.options;
    const requests = requestsIn(batch.blocks);
    const isGivenUp = batch.mayExist && !(error instanceof Outage);
    if (isGivenUp) {
      log.error("request records could not be written", { error, requests });
      dropped.add(requests);
      this.#batch = null;
      // One of these may be what it refuses.
      this.#newFacets.length = 0;
      this.#newAskers.length = 0;
      this.#forget();
    } else log.warn("writing request records failed; will retry", { error });
    // Whether it was committed is not known.
    batch.mayExist = true;
    this.#retryAtMs = this.clock.now() + RETRY_AFTER_MS;
  }

  async #store({ blocks }: Batch): Promise<void> {
    const { store, written } = this.options;
    const facets = [...this.#newFacets];
    const askers = [...this.#newAskers];
    const minutes = [...this.#sums.minutes].filter((minuteMs) => !this.#markedMinutes.has(minuteMs));
    if (minutes.length > 0) this.#hasMarks = true;
    const marks = minutes.length > 0 ? { writerId: this.#markId, minutes } : null;
    await store.insert({ blocks, facets, askers, marks });
    for (const minuteMs of minutes) this.#markedMinutes.add(minuteMs);
    this.#newFacets.splice(0, facets.length);
    this.#newAskers.splice(0, askers.length);
    written({ blocks, facets: this.#facetsById, askers: this.#askersById });
    if (this.#facetsById.size > KNOWN_MAX || this.#askers.size > KNOWN_MAX) this.#forget();
  }

  /** What is forgotten is stored again when it is next seen, which changes nothing. */
  #forget(): void {
    this.#facets.clear();
    this.#facetsById.clear();
    this.#askers.clear();
    this.#askersById.clear();
  }

  #rowOf(
    record: RequestRecord,
    { model, askerId, facetId }: { model: string | null; askerId: number; facetId: number },
  ): RecordRow {
    const { startedMs, firstSentMs, firstTokenMs, endedMs, promptTokens, completionTokens } = record;
    const isUsed = promptTokens + completionTokens > 0;
    return {
      id: record.id,
      atMs: timeOfId(record.id),
      askerId,
      facetId,
      status: record.status,
      attempts: record.attempts,
      queueMs: firstSentMs === 0 ? 0 : firstSentMs - startedMs,
      firstTokenMs: firstTokenMs === 0 ? null : firstTokenMs - startedMs,
      durationMs: endedMs - startedMs,
      promptTokens,
      completionTokens,
      costNanoUsd:
        isUsed && model ? this.options.costNanoUsd(model, { promptTokens, completionTokens }) : null,
      reason: record.reason,
      detail: detailOf(record, model),
    };
  }

  #facetOf({ surface, backend, status, code }: RequestRecord, model: string): Numbered<Facet> {
    const known = this.#facets.get(model);
    const [backendName, codeName] = [backend ?? "", code ?? ""];
    if (known)
      for (const facet of known) {
        const isOfCall = facet.surface === surface && facet.backend === backendName;
        if (isOfCall && facet.status === status && facet.code === codeName) return facet;
      }
    const id = numberFor("facet", surface, model, backendName, status, codeName);
    // An upstream names its models as it likes, but Postgres rejects NUL in a text.
    const named = model.replaceAll("\u0000", "");
    const facet = {
      id,
      idText: `${id}`,
      surface,
      model: named,
      backend: backendName,
      status,
      code: codeName,
    };
    this.#newFacets.push(facet);
    if (known) known.push(facet);
    else this.#facets.set(model, [facet]);
    this.#facetsById.set(id, facet);
    return facet;
  }

  #askerOf(record: RequestRecord): Numbered<Asker> {
    const { principal } = record;
    const userId = principal?.userId ?? record.userId;
    const keyId = principal?.keyId ?? null;
    const groupId = principal?.group?.id ?? null;
    const project = principal?.project ?? null;
    const key = keyId ?? userId ?? "";
    const known = this.#askers.get(key);
    if (known && known.groupId === groupId && known.project === project) return known;
    const keyPrefix = principal?.keyPrefix ?? null;
    const id = numberFor("asker", userId, keyId, groupId, project);
    const asker = { id, idText: `${id}`, userId, keyId, groupId, project, keyPrefix };
    this.#newAskers.push(asker);
    this.#askers.set(key, asker);
    this.#askersById.set(id, asker);
    return asker;
  }

  /** Resolves when everything so far is in the database, or cannot be for now, or the time is over. */
  async flush(timeoutMs: number): Promise<void> {
    const isAllWritten = this.waitingCount === 0 && this.#sums.size === 0 && !this.#hasMarks;
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
  const { modelAsked, message, failures, refId, clientIp, isEstimated, startedMs } = record;
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
