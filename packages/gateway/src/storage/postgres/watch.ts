import { SQL } from "bun";
import { Outage } from "../../kernel/errors.ts";

const TICK_MS = 1_000;
/** After waiting this long for a query, it is checked whether the server is reachable. */
const SLOW_TICKS = 2;
/** After this long without an answer to the check, the server counts as unreachable. */
const SILENT_TICKS = 4;
/** Longer than the check, so that the driver's own timeout does not fire first. */
const CONNECT_TIMEOUT_SECONDS = 60;

/** Tells a slow server from an unreachable one, whose queries would wait forever. Counts ticks, which stop with this process. */
export class ServerWatch {
  readonly #underWay = new Set<{ begunAt: number }>();
  readonly #timer: ReturnType<typeof setInterval>;
  #tick = 0;
  #check: { startedAt: number; sql: SQL } | null = null;
  #isSilent = false;

  constructor(
    readonly url: string,
    readonly onSilent: () => void,
  ) {
    this.#timer = setInterval(() => this.#onTick(), TICK_MS);
    this.#timer.unref();
  }

  async during<T>(query: () => Promise<T>): Promise<T> {
    if (this.#isSilent) throw new Outage("the database does not answer");
    const entry = { begunAt: this.#tick };
    this.#underWay.add(entry);
    try {
      return await query();
    } finally {
      this.#underWay.delete(entry);
    }
  }

  close(): void {
    clearInterval(this.#timer);
    this.#endCheck();
  }

  #onTick(): void {
    this.#tick++;
    if (this.#check) {
      if (this.#tick - this.#check.startedAt < SILENT_TICKS) return;
      this.#endCheck();
      this.#isSilent = true;
      this.onSilent();
      this.#startCheck();
      return;
    }
    const [oldest] = this.#underWay;
    if (oldest && this.#tick - oldest.begunAt > SLOW_TICKS) this.#startCheck();
  }

  /** On a separate connection: those of the pool may all be waiting. An error is an answer, too. */
  #startCheck(): void {
    const sql = new SQL(this.url, { max: 1, connectionTimeout: CONNECT_TIMEOUT_SECONDS });
    const check = { startedAt: this.#tick, sql };
    this.#check = check;
    const answered = () => {
      if (this.#check !== check) return;
      this.#endCheck();
      this.#isSilent = false;
    };
    sql.unsafe("SELECT 1").then(answered, answered);
  }

  #endCheck(): void {
    void this.#check?.sql.close({ timeout: 0 }).catch(() => {});
    this.#check = null;
  }
}
