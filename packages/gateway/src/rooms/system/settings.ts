import { failParam } from "../../kernel/errors.ts";
import { upsertRow } from "../../storage/contract.ts";
import type { Needs } from "../foundation.ts";

/** Published without a message when an administrator changed a setting. */
const SETTINGS_CHANGED = "settings-changed";

export interface Changeable {
  name: string;
  help: string;
  shown: string;
  /** Set in the environment, which wins. */
  isFixed: boolean;
  value(): string | null;
  problemOf(text: string): string | null;
  /** Null: the value from the start of the service. */
  set(text: string | null): void;
}

export class Settings {
  #changed: ReadonlyMap<string, string> = new Map();
  #stop = () => {};

  constructor(readonly options: Needs<"db" | "bus" | "log"> & { settings: readonly Changeable[] }) {}

  async start(): Promise<void> {
    const { bus, log } = this.options;
    const refresh = () =>
      this.#load().catch((error) => log.warn("settings not read again; the known ones stay", { error }));
    this.#stop = bus.subscribe(SETTINGS_CHANGED, refresh);
    bus.onGap(refresh);
    await this.#load();
  }

  close(): void {
    this.#stop();
  }

  list() {
    return this.options.settings.map(({ name, help, shown, isFixed, value }) => ({
      name,
      help,
      value: value(),
      default: shown,
      source: isFixed ? ("environment" as const) : this.#changed.has(name) ? ("console" as const) : null,
    }));
  }

  /** The setting of this name, if it can be changed to this value. */
  require(name: string, value: string | null, tiers: readonly string[]): Changeable {
    const setting = this.options.settings.find((each) => each.name === name);
    if (!setting) return failParam("name", `${name} is not a setting that can be changed here`);
    if (setting.isFixed) failParam("name", `${name} is set in the service's environment, which wins`);
    const problem = value === null ? null : setting.problemOf(value);
    if (problem !== null) failParam("value", problem);
    if (name === "SERVICE_NEW_ACCOUNT_TIER" && value !== null && !tiers.includes(value))
      failParam("value", `must be one of ${tiers.join(", ")}`);
    return setting;
  }

  /** Null: back to the default. Returns the previous value. */
  async update(name: string, value: string | null, tiers: readonly string[]): Promise<string | null> {
    const { db, bus } = this.options;
    const before = this.require(name, value, tiers).value();
    if (value === null) await db.run("DELETE FROM service_settings WHERE name = $1", [name]);
    else await upsertRow(db, "service_settings", { name, value }, { key: "name" });
    await this.#load();
    bus.publish(SETTINGS_CHANGED, "");
    return before;
  }

  async #load(): Promise<void> {
    const { db, settings } = this.options;
    const sql = "SELECT name, value FROM service_settings";
    const rows = await db.all<{ name: string; value: string }>(sql);
    this.#changed = new Map(rows.map(({ name, value }) => [name, value]));
    for (const setting of settings) {
      const text = this.#changed.get(setting.name) ?? null;
      // A value stored by an older release may no longer be valid.
      if (!setting.isFixed) setting.set(text === null || setting.problemOf(text) !== null ? null : text);
    }
  }
}
