import type { Reply } from "@model-gateway/wire/http";
import { isoTime } from "../../kernel/clock.ts";
import type { Principal } from "../../kernel/context.ts";
import { ERRORS, fail } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import { CLIENT_CLOSED_STATUS } from "../../kernel/request-record.ts";
import type { Admission, AdmitOptions } from "../metering/index.ts";
import { NANO_PER_USD } from "../usage/index.ts";
import { LineRun, lineRequestId, type Owed, outputLine } from "./line-call.ts";
import type { BatchesOptions } from "./service.ts";
import type { BatchRow, BatchStatus, BatchStore, Line } from "./store.ts";

const TICK_MS = 1_000;
/** One instance runs all batches; another takes over when it has been silent for this long. */
const LEASE = "batches";
const LEASE_MS = 9_000;
const LINES_AT_ONCE = 64;
/** Of one batch: when there is no room for them, no more are tried. */
const STARTED_AT_ONCE = 8;
/** How often what is held follows what is left. */
const REHOLD_MS = 2_000;
const SETTLED_WITHIN_MS = 5_000;
/** When a line found no room, or no backend, its batch waits this long, or until another line is answered. */
const PAUSE_MS = 1_000;
/** How often a line is sent to backends that fail. */
const SENDINGS = 3;
const ANSWER_BYTES = 4 * 1024 * 1024;

interface Hold {
  admission: Admission;
  nanoUsd: number;
  tokens: number;
  atMs: number;
}

/** Runs the lines of all batches, on one instance at a time, as far as backends are idle. */
export class BatchRunner {
  readonly #holds = new Map<string, Hold>();
  /** By batch and line. */
  readonly #running = new Map<
    string,
    { batchId: string; line: number; run: LineRun; ended: Promise<void> }
  >();
  readonly #sendings = new Map<string, number>();
  readonly #pausedUntilMs = new Map<string, number>();
  /** The last line of each batch that was tried: lines that cannot run are in no other's way. */
  readonly #triedLine = new Map<string, number>();
  /** Batches whose charges of an earlier run were looked for. */
  readonly #recovered = new Set<string>();
  readonly #stopTicking: () => void;
  #looking: Promise<void> | null = null;
  #isDue = false;
  /** Lines at once of each batch. */
  #share = LINES_AT_ONCE;
  #isStopped = false;

  constructor(
    readonly store: BatchStore,
    readonly options: BatchesOptions,
  ) {
    this.#stopTicking = options.clock.every(TICK_MS, () => this.wake());
  }

  /** To be called before requests come in: what batches hold is held again. */
  async start(): Promise<void> {
    this.wake();
    await this.#looking;
  }

  wake(): void {
    this.#isDue = true;
    if (this.#isStopped) return;
    this.#looking ??= this.#lookWhileDue()
      .catch((error) => this.options.log.warn("running batches failed; will retry", { error }))
      .finally(() => {
        this.#looking = null;
      });
  }

  /** A new batch; where another instance runs batches, that one soon holds for it, too. */
  begin(batchId: string, admission: Admission, bound: { nanoUsd: number; tokens: number }): void {
    this.#holds.set(batchId, { admission, ...bound, atMs: this.options.clock.now() });
    this.wake();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stopTicking();
    await this.#looking;
    this.#stopLines();
    await Promise.allSettled([...this.#running.values()].map(({ ended }) => ended));
  }

  async #lookWhileDue(): Promise<void> {
    while (this.#isDue && !this.#isStopped) {
      this.#isDue = false;
      await this.#look();
    }
  }

  async #look(): Promise<void> {
    const { bus, leases, clock, log } = this.options;
    const held = [...this.#holds];
    const active = await this.store.active();
    // Without a batch nothing is written.
    const isLeading = active.length > 0 && (!bus.shared || (await leases.acquire(LEASE, LEASE_MS)));
    for (const [id, { atMs }] of held) {
      const isOthers = !isLeading && clock.now() - atMs > LEASE_MS + TICK_MS;
      if (isOthers || !active.some((batch) => batch.id === id)) this.#release(id);
    }
    // Whoever leads now sends these lines, too.
    if (!isLeading) return this.#stopLines();
    this.#share = Math.ceil(LINES_AT_ONCE / active.length);
    for (const batch of active)
      await this.#step(batch).catch((error) =>
        log.error("running a batch failed; will retry", { batch_id: batch.id, error }),
      );
  }

  #stopLines(): void {
    for (const { run } of this.#running.values()) run.stop();
  }

  #release(batchId: string): void {
    this.#holds.get(batchId)?.admission.release();
    this.#holds.delete(batchId);
    this.#recovered.delete(batchId);
    this.#pausedUntilMs.delete(batchId);
    this.#triedLine.delete(batchId);
  }

  async #step(batch: BatchRow): Promise<void> {
    const { clock, keys } = this.options;
    if (!this.#recovered.has(batch.id)) {
      await this.#settleOwed(batch);
      this.#recovered.add(batch.id);
    }
    await this.#hold(batch);
    const principal = await keys.principalOf(batch.key_id);
    const isLate = Date.parse(batch.due_at) <= clock.now();
    if (batch.status === "cancelling") await this.#end(batch, "cancelled", CANCELLED);
    else if (principal === null) await this.#end(batch, "cancelled", REVOKED);
    else if (isLate) await this.#end(batch, "expired", EXPIRED);
    else if (batch.completed + batch.failed === batch.total) await this.#end(batch, "completed", CANCELLED);
    else await this.#startLines(batch, principal);
  }

  #runningOf(batchId: string): number[] {
    return [...this.#running.values()].flatMap((each) => (each.batchId === batchId ? each.line : []));
  }

  async #startLines(batch: BatchRow, principal: Principal): Promise<void> {
    const { clock } = this.options;
    const running = this.#runningOf(batch.id);
    const free = Math.min(STARTED_AT_ONCE, LINES_AT_ONCE - this.#running.size, this.#share - running.length);
    if (free <= 0 || (this.#pausedUntilMs.get(batch.id) ?? 0) > clock.now()) return;
    const after = this.#triedLine.get(batch.id) ?? 0;
    const lines = await this.store.pending(batch.id, { running, after, limit: free });
    this.#triedLine.set(batch.id, lines.length < free ? 0 : lines.at(-1)!.line);
    for (const line of lines) this.#start(batch, principal, line);
  }

  /** As many lines a minute as the key may make requests, counted apart: live requests lose nothing. */
  async #isTooFast({ payer }: BatchRow): Promise<boolean> {
    const { metering, counter } = this.options;
    const rates = metering.ratesOf(JSON.parse(payer) as Payer);
    return (await counter.hit(rates.map((rate) => ({ ...rate, key: `batch ${rate.key}` })))) !== null;
  }

  #pause(batchId: string): void {
    this.#pausedUntilMs.set(batchId, this.options.clock.now() + PAUSE_MS);
  }

  #start(batch: BatchRow, principal: Principal, line: Line): void {
    const { id: batchId, endpoint } = batch;
    const { inference, log, metering } = this.options;
    // Another backend than at its creation may be dearer.
    const admit = async (options: AdmitOptions) => {
      const { costUsd } = metering.boundOf({ ...options, isBatch: true });
      if (Math.ceil(costUsd * NANO_PER_USD) > line.bound_nano_usd)
        fail("payment_required", "It may cost more now than is held for it");
      if (await this.#isTooFast(batch)) fail("rate_limited", "Lines of this batch were sent too fast");
    };
    const run = new LineRun({
      ...{ batchId, line: line.line, endpoint, body: line.body },
      ...{ principal, inference, admit },
    });
    const ended = this.#run(batch, line, run)
      .catch((error) => log.error("a line of a batch failed; will retry", { batch_id: batchId, error }))
      .finally(() => {
        this.#running.delete(run.requestId);
        this.wake();
      });
    this.#running.set(run.requestId, { batchId, line: line.line, run, ended });
  }

  async #run(batch: BatchRow, line: Line, run: LineRun): Promise<void> {
    const reply = await run.answer();
    const { requestId, background } = run;
    if (background.isStopped || this.#isForLater(run, reply.head)) return this.#pause(batch.id);
    this.#sendings.delete(requestId);
    this.#pausedUntilMs.delete(batch.id);
    const output = outputLine(line.custom_id, requestId, reply);
    const isKept = output.length <= ANSWER_BYTES;
    const owed = run.owed && JSON.stringify(run.owed);
    const answer = isKept
      ? { status: reply.head.status, output, owed }
      : { status: 0, output: unansweredLine(line.custom_id, TOO_LARGE), owed };
    // The answer is stored before it is charged: after a crash what was stored is charged, and nothing else.
    if ((await this.store.answered(batch.id, line, answer)) && run.owed)
      await this.#settle(batch, line, run.owed);
  }

  /** Whether it says more of the backends than of the line. */
  #isForLater({ requestId, isSent }: LineRun, { status, headers }: Reply["head"]): boolean {
    if (!isSent) return status !== ERRORS.model_not_allowed.status;
    if (status === ERRORS.busy.status || status === CLIENT_CLOSED_STATUS) return true;
    if (status < 500 || headers?.["x-should-retry"] === "false") return false;
    const sendings = (this.#sendings.get(requestId) ?? 0) + 1;
    this.#sendings.set(requestId, sendings);
    return sendings < SENDINGS;
  }

  async #settleOwed(batch: BatchRow): Promise<void> {
    for (const line of await this.store.unsettled(batch.id))
      await this.#settle(batch, line, JSON.parse(line.owed) as Owed);
  }

  async #settle({ id, payer }: BatchRow, line: Omit<Line, "body" | "custom_id">, owed: Owed): Promise<void> {
    const { metering } = this.options;
    const { model, isOwn, usage } = owed;
    const requestId = lineRequestId(id, line.line);
    const charge = { requestId, payer: JSON.parse(payer) as Payer, model, isOwn, refId: id };
    const costNanoUsd = metering.record(charge, usage);
    metering.written();
    await this.store.settled(id, line, costNanoUsd ?? 0);
  }

  /** Holds what the lines that are not settled can cost. What was settled is held until it is in the database. */
  async #hold(batch: BatchRow): Promise<void> {
    const { metering, clock } = this.options;
    const { id, bound_nano_usd: nanoUsd, bound_tokens: tokens } = batch;
    const held = this.#holds.get(id);
    const nowMs = clock.now();
    if (held && (nowMs - held.atMs < REHOLD_MS || (held.nanoUsd === nanoUsd && held.tokens === tokens)))
      return;
    if (held && !(await metering.flush(SETTLED_WITHIN_MS))) return;
    const admission = await metering.resume({
      ...{ requestId: id, payer: JSON.parse(batch.payer) as Payer, model: "batch", refId: null },
      bound: { costUsd: nanoUsd / NANO_PER_USD, tokens },
    });
    held?.admission.release();
    this.#holds.set(id, { admission, nanoUsd, tokens, atMs: nowMs });
  }

  /** Lines on their way are waited for: they are paid for. */
  async #end(batch: BatchRow, status: BatchStatus, why: Why): Promise<void> {
    if (this.#runningOf(batch.id).length > 0) return;
    const { clock, ids, metering } = this.options;
    const fileIds = [ids.uuid(), ids.uuid()];
    const unanswered = unansweredLine("", why).slice(UNANSWERED_HEAD.length);
    // Of an answer whose storing seemed to fail.
    await this.#settleOwed(batch);
    await this.store.failPending(batch.id, unanswered);
    await this.store.end(batch, { status, now: isoTime(clock.now()), fileIds });
    await metering.flush(SETTLED_WITHIN_MS);
    this.#release(batch.id);
  }
}

interface Why {
  code: string;
  message: string;
}
const CANCELLED: Why = {
  code: "batch_cancelled",
  message: "the batch was cancelled before this line was sent",
};
const EXPIRED: Why = { code: "batch_expired", message: "no backend was idle for this line within 24 hours" };
const REVOKED: Why = {
  code: "batch_cancelled",
  message: "the API key was revoked or has expired, or its owner's account or membership ended",
};
const TOO_LARGE: Why = {
  code: "answer_too_large",
  message: `the answer has more than ${ANSWER_BYTES} characters`,
};

const UNANSWERED_HEAD = `{"id":null,"custom_id":`;
const unansweredLine = (customId: string, why: Why): string =>
  `${UNANSWERED_HEAD}${customId},"response":null,"error":${JSON.stringify(why)}}`;
