import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { AuditEntry, AuditSink } from "../../kernel/audit.ts";
import { oneAtATime } from "../../kernel/bounded.ts";
import { isoTime, sleep, within } from "../../kernel/clock.ts";
import { isUuid } from "../../kernel/ids.ts";
import { privateFolder } from "../../kernel/private-files.ts";
import type { Sweep } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import { type AuditFilter, type AuditRow, AuditStore } from "./store.ts";

const DAY_MS = 86_400_000;
/** How often waiting entries are retried, and how long an answer and a shutdown wait for them. */
const RETRY_MS = 1_000;
const ANSWERED_WITHIN_MS = 300;
const CLOSED_WITHIN_MS = 2_000;
const TEXT_MAX = { ip: 64, userAgent: 256, details: 4_000 };
/** Actors without an account: the admin token, or nobody yet. */
const ADMIN_TOKEN = "admin token";
const ANONYMOUS = "anonymous";

export interface AuditOptions extends Needs<"db" | "clock" | "ids" | "log" | "instances"> {
  settings: { readonly auditRetentionDays: number };
  dataDir: string;
}

/** The audit log: who did what to whom, from where and when. Old entries are removed. */
export class Audit implements AuditSink {
  readonly #store: AuditStore;
  readonly #journal: AuditJournal;
  #isFailing = false;
  #isClosed = false;

  constructor(readonly options: AuditOptions) {
    this.#store = new AuditStore(options.db);
    this.#journal = new AuditJournal(options.dataDir);
  }

  /** Stores what an earlier process could not. */
  start(): void {
    void this.#stored();
  }

  /**
   * Resolves when the entry is stored and every instance knows of the change, so that the client may ask any of them
   * next. Does not wait long: the entry is already in the journal.
   */
  async record(entry: AuditEntry): Promise<void> {
    const told = this.options.instances?.allDone(ANSWERED_WITHIN_MS);
    const row = this.#rowOf(entry);
    try {
      this.#journal.add(row);
    } catch (error) {
      this.options.log.error("the journal of the audit log cannot be written", { ...row, error });
      await this.#store.add(row).catch(() => {});
      return;
    }
    await Promise.all([within(this.options.clock, ANSWERED_WITHIN_MS, this.#stored()), told]);
  }

  readonly #stored = oneAtATime(() => this.#storeAll());

  async #storeAll(): Promise<void> {
    for (let row = this.#journal.first(); row; row = this.#journal.first()) {
      try {
        await this.#store.add(row);
        this.#journal.remove(row);
        this.#isFailing = false;
      } catch (error) {
        if (this.#isClosed) return;
        if (!this.#isFailing) this.options.log.error("writing to the audit log failed", { ...row, error });
        this.#isFailing = true;
        await sleep(this.options.clock, RETRY_MS);
      }
    }
  }

  /** Stores the waiting entries, as far as the database accepts them. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await within(this.options.clock, CLOSED_WITHIN_MS, this.#stored());
  }

  #rowOf({ action, caller, requestId, target, details, account }: AuditEntry): AuditRow {
    const { clock, ids } = this.options;
    const actor = caller.actor ? { id: caller.actor.userId, email: caller.actor.email } : account;
    const json = JSON.stringify(details);
    return {
      id: ids.ordered(),
      created_ms: clock.now(),
      action,
      actor_id: actor?.id ?? null,
      actor: tidy(actor?.email ?? (caller.adminToken ? ADMIN_TOKEN : ANONYMOUS)),
      ip: tidy(caller.ip.slice(0, TEXT_MAX.ip)),
      user_agent: caller.userAgent && tidy(caller.userAgent.slice(0, TEXT_MAX.userAgent)),
      target: target && tidy(target),
      details: tidy(
        json.length <= TEXT_MAX.details ? json : JSON.stringify({ fields: Object.keys(details) }),
      ),
      request_id: requestId,
    };
  }

  async list(filter: AuditFilter, limit: number) {
    // One extra row tells whether there is another page.
    const rows = await this.#store.list(filter, limit + 1);
    const page = rows.slice(0, limit);
    const names = await this.#store.namesOf(
      page.flatMap(({ target }) => (isUuid(target ?? "") ? [target!] : [])),
    );
    const entries = page.map(({ created_ms, details, ...row }) => ({
      ...row,
      at: isoTime(created_ms),
      target_name: names.get(row.target ?? "") ?? null,
      details: JSON.parse(details) as Record<string, unknown>,
    }));
    return { entries, next_cursor: rows.length > limit ? page.at(-1)!.id : null };
  }

  readonly sweep: Sweep = (nowMs, rowsMax) =>
    this.#store.deleteBefore(nowMs - this.options.settings.auditRetentionDays * DAY_MS, rowsMax);
}

/** Postgres rejects NUL in texts. */
const tidy = (text: string): string => text.replaceAll("\u0000", "");

const FOLDER = "audit";
const WAITING_MAX = 10_000;
const ENTRY = /^[0-9a-f-]{36}$/;

/** Entries not yet in the database, one file each. Workers may store each other's; each id is stored once. */
class AuditJournal {
  readonly #folder: string;

  constructor(dataDir: string) {
    this.#folder = join(dataDir, FOLDER);
    privateFolder(this.#folder);
  }

  /** Throws when the disk is full, or too many wait. */
  add(row: AuditRow): void {
    if (this.#names().length >= WAITING_MAX) throw new Error(`${WAITING_MAX} entries wait already`);
    const path = join(this.#folder, row.id);
    writeFileSync(`${path}.new`, JSON.stringify(row), { mode: 0o600, flush: true });
    renameSync(`${path}.new`, path);
  }

  first(): AuditRow | null {
    for (const name of this.#names()) {
      try {
        return JSON.parse(readFileSync(join(this.#folder, name), "utf8"));
      } catch {
        // Another worker has stored it just now.
      }
    }
    return null;
  }

  remove({ id }: AuditRow): void {
    rmSync(join(this.#folder, id), { force: true });
  }

  /** Ids are in the order of time. */
  #names(): string[] {
    // If the data directory was deleted under a running service, there is nothing to store.
    if (!existsSync(this.#folder)) return [];
    return readdirSync(this.#folder)
      .filter((name) => ENTRY.test(name))
      .sort();
  }
}
