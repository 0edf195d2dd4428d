import type { Post } from "@model-gateway/wire/webhook";
import { isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Agents } from "../agents/index.ts";
import type { Needs } from "../foundation.ts";
import type { MeteringService } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { NANO_PER_USD, utcMonth } from "../usage/index.ts";
import { type Alert, type AlertSettings, type Sender, sendersOf } from "./senders.ts";
import { type AlertRow, store } from "./store.ts";

const LOOK_EVERY_MS = 30_000;
/** A holder that died is replaced after this. */
const LEASE_MS = 3 * LOOK_EVERY_MS;
const STALLED_SECONDS = 60;
const HOUR_MS = 3_600_000;
/** People can give keys budgets as small as they like: what is told of one person must not bury the rest. */
const TOLD_OF_ONE_PER_HOUR = 10;

export interface AlertsOptions extends Needs<"db" | "clock" | "log" | "ids" | "leases" | "counter"> {
  settings: AlertSettings;
  post: Post;
  routing: Pick<Routing, "entries">;
  agents: Pick<Agents, "list">;
  metering: Pick<MeteringService, "figures">;
}

/** How one thing stands: percent used, 100 for what is gone. */
interface Condition {
  key: string;
  level: 0 | 80 | 100;
  /** Empty: nobody needs to be told. */
  message: string;
  most?: number;
  /** Whose it is, of what people spend. */
  owner?: string | null;
}

/** Pages of the console that show one thing, or say what to do about it. */
const PAGES: Record<string, (name: string, owner?: string | null) => string> = {
  backend: (name) => `/models?open=${name}`,
  node: (id) => `/nodes?open=${id}`,
  user: (id) => `/users/${id}`,
  group: (id) => `/groups/${id}`,
  key: (id, owner) => `/users/${owner}?open=${id.split("%3A")[0]}`,
  journal: () => "/docs/operators-guide#when-redis-or-postgres-is-away",
};

const levelOf = (part: number, whole: number): Condition["level"] =>
  part >= whole ? 100 : part * 5 >= whole * 4 ? 80 : 0;
const dollars = (nanoUsd: number) => `$${(nanoUsd / NANO_PER_USD).toFixed(2)}`;

/** Tells people what they should know at once: each event once, by whichever instance looks after it. */
export class Alerts {
  readonly #senders: readonly Sender[];
  /** What did not answer when it was last looked at: once may be a restart. */
  #missing: ReadonlySet<string> = new Set();
  #isStalledTold = false;
  #running: Promise<void> | null = null;
  #stop = () => {};

  constructor(readonly options: AlertsOptions) {
    this.#senders = sendersOf(options.settings, options.post);
    if (this.#senders.length > 0) this.#stop = options.clock.every(LOOK_EVERY_MS, () => void this.look());
  }

  async close(): Promise<void> {
    this.#stop();
    await this.#running;
  }

  async test() {
    if (this.#senders.length === 0)
      fail("app_error", "Nobody is told: set SERVICE_ALERT_WEBHOOK_URL or SERVICE_ALERT_SMTP_URL first");
    const alert = this.#alert("test", { level: 0, message: "This is a test. Alerts arrive here." });
    return Promise.all(
      this.#senders.map(async (sender) => {
        const detail = await sender.send(alert).then(
          () => null,
          (error: Error) => error.message,
        );
        return { to: sender.name, ok: detail === null, detail };
      }),
    );
  }

  #alert(kind: string, said: Pick<Condition, "level" | "message">): Alert {
    const { ids, clock } = this.options;
    return { id: ids.uuid(), kind, ...said, url: this.#urlOf(kind), at: isoTime(clock.now()) };
  }

  #urlOf(key: string, owner?: string | null): string | null {
    const { publicUrl } = this.options.settings;
    const [kind, ...name] = key.split(":");
    const page = PAGES[kind!]?.(encodeURIComponent(name.join(":")), owner) ?? "";
    return publicUrl && publicUrl.replace(/\/+$/, "") + page;
  }

  look(): Promise<void> {
    this.#running ??= this.#look()
      .catch((error) => this.options.log.warn("looking for alerts failed; will retry", { error }))
      .finally(() => {
        this.#running = null;
      });
    return this.#running;
  }

  async #look(): Promise<void> {
    const { db, leases } = this.options;
    // Each instance has a journal of its own, and the database may be what is away.
    await this.#lookAtJournal();
    if (!(await leases.acquire("alerts", LEASE_MS))) return;
    const rows = new Map((await store.all(db)).map((row) => [row.key, row]));
    for (const condition of await this.#conditions(rows)) {
      const row = rows.get(condition.key);
      rows.delete(condition.key);
      await this.#tell(await this.#changed(row, condition), condition.owner);
    }
    // What is no longer there, or has plenty again, begins anew.
    for (const key of rows.keys()) await store.remove(db, key);
  }

  async #lookAtJournal(): Promise<void> {
    const { metering, counter } = this.options;
    const isStalled = metering.figures.stalled_seconds > STALLED_SECONDS;
    const isNew = isStalled && !this.#isStalledTold;
    this.#isStalledTold = isStalled;
    if (!isNew) return;
    const first = await counter.hit([{ key: "alert:journal", max: 1, windowMs: HOUR_MS }]);
    if (first !== null) return;
    const message =
      "Usage cannot be written to the database. It waits in the journal; look at the database and the log.";
    await this.#send(this.#alert("journal", { level: 100, message }), "");
  }

  /** Keeps how it stands now, with what is to be told when that is news. */
  async #changed(row: AlertRow | undefined, condition: Condition): Promise<AlertRow> {
    const { key, level, message, most = 0, owner } = condition;
    const before = row?.level ?? 0;
    if (row && before === level && row.most === most) return row;
    const isNews = level > before || (level === 0 && before > 0);
    const limit = { key: `alerts:${owner}`, max: TOLD_OF_ONE_PER_HOUR, windowMs: HOUR_MS };
    const isTold = isNews && message !== "" && !(owner && (await this.options.counter.hit([limit])));
    const { id, at } = this.#alert(key, condition);
    const fresh: AlertRow = { key, id, level, most, message: isTold ? message : "", told: "", since: at };
    const now = isNews || !row ? fresh : { ...row, level, most };
    await store.save(this.options.db, now);
    return now;
  }

  async #tell(row: AlertRow, owner?: string | null): Promise<void> {
    const { key, id, level, message, since: at } = row;
    if (message === "") return;
    const told = await this.#send(
      { id, kind: key.split(":")[0]!, level, message, url: this.#urlOf(key, owner), at },
      row.told,
    );
    if (told !== row.told) await store.save(this.options.db, { ...row, told });
  }

  /** Sends it to those who have not got it; returns who has by now. */
  async #send(alert: Alert, told: string): Promise<string> {
    const names = new Set(told.split(",").filter(Boolean));
    for (const sender of this.#senders.filter(({ name }) => !names.has(name)))
      await sender.send(alert).then(
        () => names.add(sender.name),
        (error) =>
          this.options.log.warn("an alert was not sent", { to: sender.name, about: alert.message, error }),
      );
    return [...names].join(",");
  }

  async #conditions(rows: ReadonlyMap<string, AlertRow>): Promise<Condition[]> {
    const { db, clock, routing, agents } = this.options;
    const present: { key: string; isThere: boolean; gone: string; back: string }[] = [];
    for (const { config, persisted, probedAtMs, state, detail } of routing.entries) {
      if (!persisted || probedAtMs === null || config.enabled === false) continue;
      const gone = `The backend ${config.name} is down: ${detail ?? "it does not answer"}`;
      const back = `The backend ${config.name} answers again`;
      present.push({ key: `backend:${config.name}`, isThere: state !== "Unhealthy", gone, back });
    }
    for (const { agent_id, name, online, heartbeat_at } of await agents.list()) {
      if (heartbeat_at === null) continue;
      const [gone, back] = [`The node ${name} is gone since ${heartbeat_at}`, `The node ${name} is back`];
      present.push({ key: `node:${agent_id}`, isThere: online, gone, back });
    }
    const missing = new Set(present.flatMap(({ key, isThere }) => (isThere ? [] : [key])));
    const isGone = (key: string) =>
      missing.has(key) && (this.#missing.has(key) || (rows.get(key)?.level ?? 0) > 0);
    const found = present.map(({ key, gone, back }): Condition => {
      return isGone(key) ? { key, level: 100, message: gone } : { key, level: 0, message: back };
    });
    this.#missing = missing;

    for (const { key, whose, owner, kind, used, whole } of await store.budgets(db, utcMonth(clock.now()))) {
      const level = levelOf(used, whole);
      const part = `${dollars(used)} of ${dollars(whole)}`;
      const message = `${whose} has used ${level} % of its ${kind} budget: ${part}`;
      found.push({ key, level, message, owner });
    }
    for (const { key, whose, owner, balance } of await store.points(db)) {
      const before = rows.get(key);
      const most = Math.max(balance, before?.most ?? 0);
      const level = most === 0 ? 0 : levelOf(most - balance, most);
      const told = `${whose} has used ${level} % of its points: ${balance} of ${most} are left`;
      // Filled up again: what there is now is the whole from here on.
      const whole = level === 0 && before && before.level > 0 ? balance : most;
      found.push({ key, level, message: level === 0 ? "" : told, most: whole, owner });
    }
    return found;
  }
}
