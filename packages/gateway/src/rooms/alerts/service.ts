import { mailServerOf, sendMail } from "@model-gateway/wire/smtp";
import { type Post, postWebhook } from "@model-gateway/wire/webhook";
import { oneAtATime } from "../../kernel/bounded.ts";
import { isoTime } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Agents } from "../agents/index.ts";
import type { Needs } from "../foundation.ts";
import type { MeteringService } from "../metering/index.ts";
import type { Routing } from "../routing/index.ts";
import { NANO_PER_USD, utcMonth } from "../usage/index.ts";
import { type AlertRow, store } from "./store.ts";

const LOOK_EVERY_MS = 30_000;
/** A holder that died is replaced after this. */
const LEASE_MS = 3 * LOOK_EVERY_MS;
const STALLED_SECONDS = 60;
const HOUR_MS = 3_600_000;
/** Limit per person: keys with tiny budgets must not flood the alerts. */
const TOLD_OF_ONE_PER_HOUR = 10;

interface Alert {
  /** The same id for every attempt to send it. */
  id: string;
  /** What it is about: backend, node, key, user, group, journal or test. */
  kind: string;
  /** Percent used; 100: gone, 0: back again. */
  level: number;
  message: string;
  /** Link to the console; null if its public address is not configured. */
  url: string | null;
  at: string;
}

export interface AlertSettings {
  alertWebhookUrl: string | null;
  alertWebhookSecret: string | null;
  alertSmtpUrl: string | null;
  alertMailFrom: string | null;
  alertMailTo: readonly string[];
  publicUrl: string | null;
}

interface Sender {
  name: "webhook" | "mail";
  /** Throws if the alert was not accepted. */
  send(alert: Alert): Promise<void>;
}

export interface AlertsOptions extends Needs<"db" | "clock" | "log" | "ids" | "leases" | "counter"> {
  settings: AlertSettings;
  post: Post;
  routing: Pick<Routing, "entries">;
  agents: Pick<Agents, "list">;
  metering: Pick<MeteringService, "figures">;
}

/** The state of one thing: percent used, 100 if it is gone. */
interface Condition {
  key: string;
  level: 0 | 80 | 100;
  /** Empty: nobody needs to be told. */
  message: string;
  most?: number;
  /** The owner, for things that people spend. */
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

/** Sends alerts, each once, from whichever instance holds the lease. */
export class Alerts {
  readonly #senders: readonly Sender[];
  /** Backends that were down at the last check. Once may be a restart. */
  #missing: ReadonlySet<string> = new Set();
  #isStalledTold = false;
  #stop = () => {};

  constructor(readonly options: AlertsOptions) {
    this.#senders = sendersOf(options.settings, options.post);
    if (this.#senders.length > 0) this.#stop = options.clock.every(LOOK_EVERY_MS, () => void this.look());
  }

  async close(): Promise<void> {
    this.#stop();
    await this.look.running;
  }

  async test() {
    if (this.#senders.length === 0)
      fail("app_error", "Nobody is told: set SERVICE_ALERT_WEBHOOK_URL or SERVICE_ALERT_SMTP_URL first");
    const alert = this.#alert("test", { level: 0, message: "This is a test. Alerts arrive here." });
    return Promise.all(
      this.#senders.map(async (sender) => {
        const problem = await sender.send(alert).catch((error: Error) => error.message);
        return { to: sender.name, ok: problem === undefined, detail: problem ?? null };
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

  readonly look = oneAtATime(() =>
    this.#look().catch((error) => this.options.log.warn("looking for alerts failed; will retry", { error })),
  );

  async #look(): Promise<void> {
    const { db, leases } = this.options;
    // Each instance has its own journal, and the database itself may be down.
    await this.#lookAtJournal();
    if (!(await leases.acquire("alerts", LEASE_MS))) return;
    const rows = new Map((await store.all(db)).map((row) => [row.key, row]));
    for (const condition of await this.#conditions(rows)) {
      const row = rows.get(condition.key);
      rows.delete(condition.key);
      await this.#tell(await this.#changed(row, condition), condition.owner);
    }
    // Things that are gone or have recovered start over.
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

  /** Stores the current state, and the alert to send if it changed. */
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

  /** Sends it through the senders that have not sent it yet; returns all that have. */
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
      // Topped up: the present balance counts as 100 % from now on.
      const whole = level === 0 && before && before.level > 0 ? balance : most;
      found.push({ key, level, message: level === 0 ? "" : told, most: whole, owner });
    }
    return found;
  }
}

const SUBJECT_CHARS = 120;

/** The configured senders. The configuration is already checked for completeness. */
function sendersOf(settings: AlertSettings, post: Post): Sender[] {
  const { alertWebhookUrl: url, alertWebhookSecret: secret, alertSmtpUrl } = settings;
  const senders: Sender[] = [];
  if (url !== null && secret !== null) {
    const send: Sender["send"] = (alert) =>
      postWebhook({ url, secret, id: alert.id, body: JSON.stringify(alert), nowMs: Date.now() }, post);
    senders.push({ name: "webhook", send });
  }
  if (alertSmtpUrl !== null) {
    const addresses = { from: settings.alertMailFrom!, to: settings.alertMailTo };
    const send: Sender["send"] = ({ id, message, url: link, at }) => {
      const subject = `[Model gateway] ${message.replace(/\p{Cc}/gu, " ").slice(0, SUBJECT_CHARS)}`;
      const text = [message, link ?? ""].join("\n\n").trim();
      return sendMail(mailServerOf(alertSmtpUrl), { ...addresses, subject, text, id, atMs: Date.parse(at) });
    };
    senders.push({ name: "mail", send });
  }
  return senders;
}
