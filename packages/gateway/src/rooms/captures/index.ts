import { firstIdAt } from "../../kernel/ids.ts";
import { isObject } from "../../kernel/json.ts";
import type { RequestRecord } from "../../kernel/request-record.ts";
import { insertAll, type Sweep } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";
import { DAY_MS } from "../usage/index.ts";

/** Longer prompts and answers are cut. */
const TEXT_CHARS_MAX = 64 * 1024;
const STRING_CHARS_MAX = 16 * 1024;
const SHORT_STRING_CHARS_MAX = 512;
const DATA_URL_CHARS_MAX = 256;
/** Limit for captures that wait for the database; beyond it they are dropped, with a log line. */
const WAITING_CHARS_MAX = 16 * 1024 * 1024;
const WRITE_EVERY_MS = 1_000;
export const CAPTURES_KEPT_DAYS = 7;
const CAPTURES_MAX = 10_000;

interface CapturedRow {
  request_id: string;
  key_id: string;
  asked: string;
  answered: string | null;
}

export interface Captured {
  asked: Record<string, unknown>;
  answered: Record<string, unknown> | null;
}

/** Prompts and answers of the keys that an administrator chose, for a limited time. */
export class Captures {
  #waiting: CapturedRow[] = [];
  #waitingChars = 0;
  #writing = Promise.resolve();
  readonly #stop: () => void;

  constructor(readonly options: Needs<"db" | "clock" | "log">) {
    this.#stop = options.clock.every(WRITE_EVERY_MS, () => void this.flush());
  }

  /** Takes the prompt and answer of a finished request. Never throws. */
  take({ id, principal, details: { capture } }: RequestRecord): void {
    if (!capture?.asked || !principal) return;
    const { log } = this.options;
    try {
      const answered = capture.answered?.() ?? null;
      const row = {
        request_id: id,
        key_id: principal.keyId,
        asked: shortened(capture.asked),
        answered: answered && shortened(answered),
      };
      const chars = charsOf(row);
      if (this.#waitingChars + chars > WAITING_CHARS_MAX) {
        log.warn("a captured prompt was dropped: too many wait for the database", { request_id: id });
        return;
      }
      this.#waitingChars += chars;
      this.#waiting.push(row);
    } catch (error) {
      log.warn("a prompt could not be captured", { request_id: id, error });
    }
  }

  /** Writes what is waiting. Captures that the database does not accept are dropped: they are an aid, not a record. */
  flush(): Promise<void> {
    if (this.#waiting.length === 0) return this.#writing;
    const rows = this.#waiting;
    this.#waiting = [];
    const { db, log } = this.options;
    this.#writing = this.#writing
      .then(() => insertAll(db, "captured_prompts", rows, "ON CONFLICT (request_id) DO NOTHING"))
      .catch((error) => log.warn("captured prompts could not be written", { error, rows: rows.length }))
      .then(() => {
        for (const row of rows) this.#waitingChars -= charsOf(row);
      });
    return this.#writing;
  }

  async of(requestId: string): Promise<Captured | null> {
    await this.flush();
    const sql = "SELECT request_id, key_id, asked, answered FROM captured_prompts WHERE request_id = $1";
    const row = await this.options.db.get<CapturedRow>(sql, [requestId]);
    return row && { asked: JSON.parse(row.asked), answered: JSON.parse(row.answered ?? "null") };
  }

  async forget(keyId: string): Promise<number> {
    await this.flush();
    return this.options.db.run("DELETE FROM captured_prompts WHERE key_id = $1", [keyId]);
  }

  readonly sweep: Sweep = async (nowMs, rowsMax) => {
    const { db } = this.options;
    const sql = "SELECT request_id FROM captured_prompts ORDER BY request_id DESC LIMIT 1 OFFSET $1";
    const cut = await db.get<{ request_id: string }>(sql, [CAPTURES_MAX]);
    const old = firstIdAt(nowMs - CAPTURES_KEPT_DAYS * DAY_MS);
    const upTo = cut && cut.request_id > old ? cut.request_id : old;
    return db.run(
      `DELETE FROM captured_prompts WHERE request_id IN
         (SELECT request_id FROM captured_prompts WHERE request_id <= $1 ORDER BY request_id LIMIT $2)`,
      [upTo, rowsMax],
    );
  };

  async close(): Promise<void> {
    this.#stop();
    await this.flush();
  }
}

const charsOf = ({ asked, answered }: CapturedRow): number => asked.length + (answered?.length ?? 0);

/** Cuts long texts, and replaces files by their size. */
const withStringsOf = (charsMax: number) => (_: string, value: unknown) => {
  if (typeof value !== "string") return value;
  if (value.length > DATA_URL_CHARS_MAX && /^data:|^[A-Za-z0-9+/]{256}/.test(value))
    return `[a file, ${value.length} characters]`;
  return value.length > charsMax
    ? `${value.slice(0, charsMax).toWellFormed()}… [${value.length} characters]`
    : value;
};

/** JSON of limited size: cuts the longest texts first, then drops the oldest messages. */
function shortened(value: unknown): string {
  const whole = JSON.stringify(value, withStringsOf(STRING_CHARS_MAX));
  if (whole.length <= TEXT_CHARS_MAX) return whole;
  const short = JSON.parse(JSON.stringify(value, withStringsOf(SHORT_STRING_CHARS_MAX))) as unknown;
  if (!isObject(short)) return JSON.stringify({ cut: true });
  const messages = Array.isArray(short.messages) ? [...short.messages] : [];
  const { tools: _, messages: __, ...rest } = short;
  for (; messages.length > 0; messages.shift()) {
    const text = JSON.stringify({ ...rest, messages, cut: true });
    if (text.length <= TEXT_CHARS_MAX) return text;
  }
  const text = JSON.stringify({ ...rest, cut: true });
  return text.length <= TEXT_CHARS_MAX ? text : JSON.stringify({ cut: true });
}
