import { SQL } from "bun";
import { Outage } from "../../kernel/errors.ts";

const TICK_MS = 1_000;
/** A query that waits longer triggers a check whether the server is reachable. */
const SLOW_TICKS = 2;
/** A server that has not answered the check by then counts as unreachable. */
const SILENT_TICKS = 4;
/** Longer than the check may take, so that the driver's own timeout does not fire first. */
const CONNECT_TIMEOUT_SECONDS = 60;

/** Tells a slow server from an unreachable one, whose queries would wait forever. Ticks stand still while we do. */
export class ServerWatch {
  readonly #underWay = new Set<{ begunAt: number }>();
  readonly #timer: ReturnType<typeof setInterval>;
  #tick = 0;
  #question: { askedAt: number; sql: SQL } | null = null;
  #isSilent = false;

  constructor(
    readonly url: string,
    readonly onSilent: () => void,
  ) {
    this.#timer = setInterval(() => this.#look(), TICK_MS);
    this.#timer.unref();
  }

  /** Runs a query, unless the server is known not to answer. */
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
    this.#endQuestion();
  }

  #look(): void {
    this.#tick++;
    if (this.#question) {
      if (this.#tick - this.#question.askedAt < SILENT_TICKS) return;
      this.#endQuestion();
      this.#isSilent = true;
      this.onSilent();
      this.#ask();
      return;
    }
    const [oldest] = this.#underWay;
    if (oldest && this.#tick - oldest.begunAt > SLOW_TICKS) this.#ask();
  }

  /** On a connection of its own: those of the pool may all be waiting. A refusal is an answer as well. */
  #ask(): void {
    const sql = new SQL(this.url, { max: 1, connectionTimeout: CONNECT_TIMEOUT_SECONDS });
    const question = { askedAt: this.#tick, sql };
    this.#question = question;
    const answered = () => {
      if (this.#question !== question) return;
      this.#endQuestion();
      this.#isSilent = false;
    };
    sql.unsafe("SELECT 1").then(answered, answered);
  }

  #endQuestion(): void {
    const question = this.#question;
    this.#question = null;
    void question?.sql.close({ timeout: 0 }).catch(() => {});
  }
}
