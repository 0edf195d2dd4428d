import type { Reply } from "@model-gateway/wire/http";
import { oneAtATime } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import type { Principal } from "../../kernel/context.ts";
import { ERRORS, fail } from "../../kernel/errors.ts";
import type { Payer } from "../../kernel/payer.ts";
import { CLIENT_CLOSED_STATUS } from "../../kernel/request-record.ts";
import type { Admission, AdmitOptions } from "../metering/index.ts";
import { NANO_PER_USD, utcMonth } from "../usage/index.ts";
import { KEPT_BYTES } from "./check.ts";
import {
  LineRun,
  lineRequestId,
  type Owed,
  outputLine,
  owedSince,
  type Sending,
  sendingOf,
} from "./line-call.ts";
import type { BatchesOptions } from "./service.ts";
import type { BatchRow, BatchStatus, BatchStore, Line, UnsettledLine } from "./store.ts";

const TICK_MS = 1_000;
/** One instance runs all batches; another takes over after this silence. */
const LEASE = "batches";
const LEASE_MS = 9_000;
const LINES_AT_ONCE = 64;
/** Per batch, this many lines are tried at first and after each pause, and one more for each answer. */
const TRIED_AT_ONCE = 8;
/** Pause before lines that found no room or no backend are tried again, times the number of batches. */
const PAUSE_MS = 200;
/** How often holds are adjusted to what is left. */
const REHOLD_MS = 2_000;
const SETTLED_WITHIN_MS = 5_000;
/** How often a line is sent to failing backends, and how long its batch pauses in between. */
const SENDINGS = 3;
const FAILED_MS = 2_000;
const ANSWER_BYTES = 4 * 1024 * 1024;

/** What this instance knows about a running batch. */
interface UnderWay {
  hold: { admission: Admission; nanoUsd: number; tokens: number; atMs: number; month: string } | null;
  /** Whether lines of an earlier leader have been taken over. */
  isTakenOver: boolean;
  tries: number;
  triesGivenAtMs: number;
  /** The last line that was tried, so that lines that cannot run do not block others. */
  triedLine: number;
  /** How often each line was sent to a backend that failed. */
  sendings: Map<number, number>;
  outputBytes: number;
}

/** Runs the lines of all batches, on one instance at a time, as far as backends are idle. */
export class BatchRunner {
  readonly #batches = new Map<string, UnderWay>();
  /** By batch and line. */
  readonly #running = new Map<string, { batchId: string; run: LineRun; ended: Promise<void> }>();
  readonly #stopTicking: () => void;
  readonly #look = oneAtATime(() => this.#stepWhileDue());
  #isDue = false;
  /** Lines at once of each batch. */
  #share = LINES_AT_ONCE;
  #isDraining = false;
  #isStopped = false;

  constructor(
    readonly store: BatchStore,
    readonly options: BatchesOptions,
  ) {
    this.#stopTicking = options.clock.every(TICK_MS, () => this.wake());
  }

  /** Renews the holds of batches. Call it before requests come in. */
  async start(): Promise<void> {
    this.wake();
    await this.#look.running;
  }

  wake(): void {
    this.#isDue = true;
    if (!this.#isStopped) void this.#look();
  }

  /** Starts a new batch. If another instance runs the batches, it will soon hold for it, too. */
  begin(batchId: string, admission: Admission, bound: { nanoUsd: number; tokens: number }): void {
    const underWay = this.#underWay(batchId);
    // It may have been found, and held for, as soon as it was stored.
    underWay.hold?.admission.release();
    underWay.hold = { admission, ...bound, atMs: this.options.clock.elapsed(), month: this.#month };
    this.wake();
  }

  /** Sends no more lines; resolves when those that were sent have ended. */
  async drained(): Promise<void> {
    this.#isDraining = true;
    await this.#look.running;
    await this.#allEnded();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stopTicking();
    await this.#look.running;
    this.#stopLines();
    await this.#allEnded();
  }

  async #allEnded(): Promise<void> {
    await Promise.allSettled(Array.from(this.#running.values(), ({ ended }) => ended));
  }

  async #stepWhileDue(): Promise<void> {
    try {
      while (this.#isDue && !this.#isStopped) {
        this.#isDue = false;
        await this.#stepAll();
      }
    } catch (error) {
      this.options.log.warn("running batches failed; will retry", { error });
    }
  }

  async #stepAll(): Promise<void> {
    const { bus, leases, clock, log } = this.options;
    const known = [...this.#batches];
    const active = await this.store.active();
    // Without batches do not write to the database.
    const isLeading = active.length > 0 && (!bus.shared || (await leases.acquire(LEASE, LEASE_MS)));
    for (const [id, { hold }] of known) {
      const heldForMs = clock.elapsed() - (hold?.atMs ?? 0);
      const isOthers = !isLeading && heldForMs > LEASE_MS + TICK_MS;
      if (isOthers || !active.some((batch) => batch.id === id)) this.#release(id);
    }
    // The new leader treats running lines as interrupted.
    if (!isLeading) return this.#stopLines();
    this.#share = Math.ceil(LINES_AT_ONCE / active.length);
    for (const batch of active)
      await this.#step(batch, active).catch((error) =>
        log.error("running a batch failed; will retry", { batch_id: batch.id, error }),
      );
  }

  #stopLines(): void {
    for (const { run } of this.#running.values()) run.stop();
  }

  get #month(): string {
    return utcMonth(this.options.clock.now());
  }

  #underWay(batchId: string): UnderWay {
    return this.#batches.getOrInsertComputed(batchId, () => ({
      ...{ hold: null, isTakenOver: false, tries: 0, triesGivenAtMs: 0, triedLine: 0, sendings: new Map() },
      outputBytes: 0,
    }));
  }

  #release(batchId: string): void {
    this.#batches.get(batchId)?.hold?.admission.release();
    this.#batches.delete(batchId);
  }

  async #step(batch: BatchRow, active: readonly BatchRow[]): Promise<void> {
    const { clock, keys } = this.options;
    const underWay = this.#underWay(batch.id);
    if (!underWay.isTakenOver) {
      await this.#takeOver(batch);
      // Summing over the lines of a large new batch would block others for nothing.
      if (batch.completed + batch.failed > 0) underWay.outputBytes = await this.store.outputBytes(batch.id);
      underWay.isTakenOver = true;
    }
    await this.#hold(batch, underWay);
    const principal = await keys.principalOf(batch.key_id);
    const isLate = Date.parse(batch.due_at) <= clock.now();
    if (batch.status === "cancelling") await this.#end(batch, "cancelled", CANCELLED);
    else if (principal === null) await this.#end(batch, "cancelled", REVOKED);
    else if (isLate) await this.#end(batch, "expired", EXPIRED);
    else if (batch.completed + batch.failed === batch.total) await this.#end(batch, "completed", CANCELLED);
    else if ((await this.#keptBytes(batch.user_id, active)) >= KEPT_BYTES)
      await this.#end(batch, "cancelled", FULL);
    else if (!this.#isDraining) await this.#startLines(batch, principal, underWay);
  }

  /** The user's files and the output of running batches. */
  async #keptBytes(userId: string, active: readonly BatchRow[]): Promise<number> {
    const files = await this.store.keptBytes(userId);
    const own = active.filter(({ user_id }) => user_id === userId);
    return own.reduce((bytes, { id }) => bytes + this.#underWay(id).outputBytes, files);
  }

  #runningOf(batchId: string): number[] {
    return [...this.#running.values()].flatMap((each) => (each.batchId === batchId ? each.run.line : []));
  }

  async #startLines(batch: BatchRow, principal: Principal, underWay: UnderWay): Promise<void> {
    const running = this.#runningOf(batch.id);
    const nowMs = this.options.clock.elapsed();
    if (nowMs - underWay.triesGivenAtMs >= PAUSE_MS * this.#batches.size)
      Object.assign(underWay, { tries: TRIED_AT_ONCE, triesGivenAtMs: nowMs });
    const free = Math.min(underWay.tries, LINES_AT_ONCE - this.#running.size, this.#share - running.length);
    if (free <= 0) return;
    const lines = await this.store.pending(batch.id, { running, after: underWay.triedLine, limit: free });
    underWay.tries -= lines.length;
    underWay.triedLine = lines.length < free ? 0 : lines.at(-1)!.line;
    for (const line of lines) this.#start(batch, principal, line);
  }

  /** Applies the key's requests per minute, counted apart from live requests. */
  async #isTooFast({ payer }: BatchRow): Promise<boolean> {
    const { metering, counter } = this.options;
    const rates = metering.ratesOf(JSON.parse(payer) as Payer);
    return (await counter.hit(rates.map((rate) => ({ ...rate, key: `batch ${rate.key}` })))) !== null;
  }

  #start(batch: BatchRow, principal: Principal, line: Line): void {
    const { id: batchId, endpoint } = batch;
    const { inference, log, metering, clock } = this.options;
    // The backend may be more expensive than the one at creation.
    const admit = async (options: AdmitOptions) => {
      const { costUsd, rates } = metering.boundOf({ ...options, isBatch: true });
      if (Math.ceil(costUsd * NANO_PER_USD) > line.bound_nano_usd)
        fail("payment_required", "It may cost more now than is held for it");
      if (await this.#isTooFast(batch)) fail("rate_limited", "Lines of this batch were sent too fast");
      // On own hardware a repeated line costs nothing.
      if (options.isOwn) return;
      const pace = { sentAtMs: clock.now(), tokensPerSecond: metering.tokensPerSecond(options) };
      const mark = JSON.stringify({ ...sendingOf(options, rates), ...pace });
      if (!(await this.store.mark(batchId, line.line, run.mark, mark))) fail("busy", "It is sent elsewhere");
      run.mark = mark;
    };
    const run = new LineRun({
      ...{ batchId, line: line.line, endpoint, body: line.body },
      ...{ principal, inference, admit },
    });
    const ended = this.#run(batch, line, run)
      .catch((error) => {
        log.error("a line of a batch failed; will retry", { batch_id: batchId, error });
        // Its mark is still set.
        this.#underWay(batchId).isTakenOver = false;
      })
      .finally(() => {
        this.#running.delete(run.requestId);
        this.wake();
      });
    this.#running.set(run.requestId, { batchId, run, ended });
  }

  async #run(batch: BatchRow, line: Line, run: LineRun): Promise<void> {
    const { clock } = this.options;
    const reply = await run.answer();
    const { requestId, isStopped, mark } = run;
    if (isStopped && run.isSent && mark !== null) return this.#interrupted(batch, { ...line, owed: mark });
    const underWay = this.#underWay(batch.id);
    if (isStopped || isForLater(run, reply.head, underWay)) {
      // Give a failing backend time.
      if (run.isSent && !isStopped)
        Object.assign(underWay, { tries: 0, triesGivenAtMs: clock.elapsed() + FAILED_MS });
      clock.after(PAUSE_MS, () => this.wake());
      if (mark !== null) await this.store.mark(batch.id, line.line, mark, null);
      return;
    }
    underWay.sendings.delete(line.line);
    underWay.tries = Math.min(TRIED_AT_ONCE, underWay.tries + 1);
    const output = outputLine(line.custom_id, requestId, reply);
    const isKept = output.length <= ANSWER_BYTES;
    await this.#answered(batch, line, {
      status: isKept ? reply.head.status : 0,
      output: isKept ? output : unansweredLine(line.custom_id, TOO_LARGE),
      // The answer was cut short, e.g. because the key was revoked.
      owed: mark !== null && run.owed?.usage.isUntold ? this.#owedSince(mark) : run.owed,
    });
  }

  /** Charges what the vendor may bill, like a request that was cut short. The line is not sent again. */
  #interrupted(batch: BatchRow, line: Omit<UnsettledLine, "status">): Promise<void> {
    const output = unansweredLine(line.custom_id, INTERRUPTED);
    return this.#answered(batch, line, { status: 0, output, owed: this.#owedSince(line.owed) });
  }

  #owedSince(mark: string): Owed {
    return owedSince(JSON.parse(mark) as Sending, this.options.clock.now());
  }

  /** Stores the answer before charging it: after a crash exactly what was stored is charged. */
  async #answered(
    batch: BatchRow,
    line: Omit<Line, "body">,
    { owed, ...answer }: { status: number; output: string; owed: Owed | null },
  ): Promise<void> {
    const stored = { ...answer, owed: owed && JSON.stringify(owed) };
    if (!(await this.store.answered(batch.id, line, stored))) return;
    this.#underWay(batch.id).outputBytes += Buffer.byteLength(answer.output) + 1;
    if (owed) await this.#settle(batch, line, owed);
  }

  /** Charges answered lines of an earlier leader, and ends those that were sent and are not running any more. */
  async #takeOver(batch: BatchRow): Promise<void> {
    const running = this.#runningOf(batch.id);
    for (const line of await this.store.unsettled(batch.id)) {
      if (running.includes(line.line)) continue;
      if (line.status === null) await this.#interrupted(batch, line);
      else await this.#settle(batch, line, JSON.parse(line.owed) as Owed);
    }
  }

  async #settle({ id, payer }: BatchRow, line: Omit<Line, "body">, owed: Owed): Promise<void> {
    const { metering } = this.options;
    const { model, isOwn, usage } = owed;
    const requestId = lineRequestId(id, line.line);
    const charge = { requestId, payer: JSON.parse(payer) as Payer, model, isOwn, refId: id };
    const costNanoUsd = metering.record(charge, usage);
    metering.written();
    await this.store.settled(id, line, costNanoUsd ?? 0);
  }

  /** Holds what the unsettled lines can cost; settled lines stay held until they are in the database. */
  async #hold(batch: BatchRow, underWay: UnderWay): Promise<void> {
    const { metering, clock } = this.options;
    const { id, bound_nano_usd: nanoUsd, bound_tokens: tokens } = batch;
    const { hold } = underWay;
    const atMs = clock.elapsed();
    const month = this.#month;
    // In a new month the lines are charged to another quota.
    const isSame = hold?.nanoUsd === nanoUsd && hold.tokens === tokens && hold.month === month;
    if (hold && (atMs - hold.atMs < REHOLD_MS || isSame)) return;
    if (hold && !(await metering.flush(SETTLED_WITHIN_MS))) return;
    const admission = await metering.resume({
      ...{ requestId: id, payer: JSON.parse(batch.payer) as Payer, model: "batch", refId: null },
      bound: { costUsd: nanoUsd / NANO_PER_USD, tokens },
    });
    underWay.hold?.admission.release();
    underWay.hold = { admission, nanoUsd, tokens, atMs, month };
  }

  /** Waits for lines that were sent, because they are charged. */
  async #end(batch: BatchRow, status: BatchStatus, why: Why): Promise<void> {
    if (this.#runningOf(batch.id).length > 0) return;
    const { clock, ids, metering } = this.options;
    const fileIds = [ids.uuid(), ids.uuid()];
    const unanswered = unansweredLine("", why).slice(UNANSWERED_HEAD.length);
    // Catches answers whose storing seemed to fail.
    await this.#takeOver(batch);
    if (status !== "completed") await this.store.failPending(batch.id, unanswered);
    await this.store.end(batch, { status, now: isoTime(clock.now()), fileIds });
    await metering.flush(SETTLED_WITHIN_MS);
    this.#release(batch.id);
  }
}

/** Whether to try the line again, because the answer was due to the backends and not to the line. */
function isForLater(
  { isSent, line, mark, owed }: LineRun,
  { status, headers }: Reply["head"],
  { sendings }: UnderWay,
): boolean {
  if (!isSent) return status !== ERRORS.model_not_allowed.status;
  // The vendor bills it, so do not send it twice.
  if (mark !== null && owed !== null) return false;
  if (status === ERRORS.busy.status || status === CLIENT_CLOSED_STATUS) return true;
  if (status < 500 || headers?.["x-should-retry"] === "false") return false;
  const count = (sendings.get(line) ?? 0) + 1;
  sendings.set(line, count);
  return count < SENDINGS;
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
const INTERRUPTED: Why = {
  code: "interrupted",
  message:
    "the service was stopped after this line had been sent; what its vendor may bill for it is charged, so it was not sent again",
};
const FULL: Why = {
  code: "storage_full",
  message: `your files have ${KEPT_BYTES} bytes, the most that are kept, so this line was not sent; delete some and send it again`,
};
const TOO_LARGE: Why = {
  code: "answer_too_large",
  message: `the answer has more than ${ANSWER_BYTES} characters`,
};

const UNANSWERED_HEAD = `{"id":null,"custom_id":`;
const unansweredLine = (customId: string, why: Why): string =>
  `${UNANSWERED_HEAD}${customId},"response":null,"error":${JSON.stringify(why)}}`;
