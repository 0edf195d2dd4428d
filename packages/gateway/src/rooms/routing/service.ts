import {
  type Backend,
  type BackendConfig,
  BackendError,
  type BackendKind,
  type DialectName,
  type Trial,
} from "../../backends/contract.ts";
import type { Counter } from "../../bus/contract.ts";
import { isoTime, within } from "../../kernel/clock.ts";
import { fail, failParam } from "../../kernel/errors.ts";
import { shownUrl } from "../../kernel/shown-address.ts";
import type { Needs } from "../foundation.ts";
import { Aliases } from "./aliases.ts";
import { ALL, CircuitBoard, Circuits } from "./circuit.ts";
import { type Entry, newEntry } from "./entry.ts";
import { firstContact, type Tested } from "./first-contact.ts";
import { HealthChecker } from "./health.ts";
import { ModelRoutes, type PlanRequest, RoutePlan } from "./model-routes.ts";
import { type BackendFactory, changed, complete, configOf, type Registration } from "./registration.ts";
import { payerIdOf, type Route, type RouteRequest } from "./route.ts";
import { type BackendChoice, type RoutableModel, Router } from "./router.ts";
import type { Sealer } from "./sealer.ts";
import { BackendStore, type SavedBackend, type StoredBackend } from "./store.ts";

const CHANGED = "backends-changed";
/** Message: JSON with a backend's name and the implausible usage that it reported. */
const SUSPECTED = "backend-suspected";
const BACKENDS_MAX = 1_000;
/** How long a registration waits for the database. */
const SAVED_WITHIN_MS = 500;
/** All instances together send one test call per open circuit in this time. */
const TEST_PAUSE_MS = 1_000;
/** First index of backends that could not be saved, which only one instance knows. */
const UNSAVED_INDEX_MIN = 1_000_000;
/** A backend that reports implausible usage does so in every answer, so it is logged only now and then. */
const SUSPICION_LOGGED_EVERY_MS = 60_000;
const DISABLED = "disabled by an administrator";

export interface RoutingOptions extends Needs<"db" | "bus" | "clock" | "log" | "metrics" | "events"> {
  factory: BackendFactory;
  choice: BackendChoice;
  counter: Pick<Counter, "hit">;
  sealer: Sealer;
}

export class Routing {
  readonly aliases: Aliases;
  readonly routes: ModelRoutes;
  readonly #store: BackendStore;
  readonly entries: Entry[] = [];
  readonly #circuits: CircuitBoard;
  readonly router: Router;
  readonly #health: HealthChecker;
  /** Changes of the list run one after the other, so that a reload and a registration cannot interleave. */
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;
  suspicions = 0;

  constructor(readonly options: RoutingOptions) {
    const { db, bus, counter, clock, log, factory, sealer } = options;
    this.aliases = new Aliases(bus, (model) => this.router.isListed(model) || this.routes.has(model));
    this.routes = new ModelRoutes(options);
    this.#store = new BackendStore(db, sealer, (backend) =>
      log.error("a backend's key was sealed with another SERVICE_JWT_SECRET; register it again", { backend }),
    );
    // Not a bridge, whose tunnel belongs to this machine, and not a backend that was not saved.
    const isCommon = ({ persisted, isAdopted, config }: Entry) =>
      (persisted || isAdopted) && !factory.isBridgeUrl(config.url);
    this.#circuits = new CircuitBoard({
      ...options,
      entries: this.entries,
      isCommon,
      takeTurn: async (key) => (await counter.hit([{ key, max: 1, windowMs: TEST_PAUSE_MS }])) === null,
      mayBeLost: (entry) => this.#health.watchOver(entry),
    });
    this.router = new Router(this.entries, clock, this.#circuits, options.choice);
    this.#health = new HealthChecker({
      ...options,
      entries: this.entries,
      refresh: () => this.reload(),
      changed: (entry, before) => {
        if (entry.state === "Healthy" && before !== "Healthy") this.router.joined(entry);
        this.router.changed();
      },
      probed: (entry, isWell) => {
        for (const event of entry.circuits.probed(isWell, clock.now())) this.#circuits.tell(entry, event);
      },
    });
    bus.subscribe(SUSPECTED, (message) => {
      const { name, ...suspicion } = JSON.parse(message);
      const entry = this.#find(name);
      if (entry) entry.suspicion = { ...suspicion, count: (entry.suspicion?.count ?? 0) + 1 };
    });
    bus.subscribe(CHANGED, () => this.reload());
    bus.onGap(() => void this.reload());
  }

  /** Loads the registered backends, which are probed at once. */
  async start(): Promise<void> {
    await Promise.all([this.reload(), this.routes.reload()]);
    this.#health.start();
    this.#circuits.ask();
  }

  /** Resolves when every backend has been probed, or after this time. */
  async probed(timeoutMs: number): Promise<void> {
    const unknown = this.entries.filter(({ probedAtMs }) => probedAtMs === null);
    const probes = Promise.allSettled(unknown.map((entry) => this.#health.probe(entry)));
    await within(this.options.clock, timeoutMs, probes);
  }

  close(): void {
    this.#closed = true;
    this.#health.stop();
    this.#circuits.close();
    for (const entry of this.entries) this.#retire(entry);
  }
  get modelCount(): number {
    return this.callableModels().length;
  }
  /** Null: no model route has this name. Leaves out the targets that `refusal` refuses. */
  plan(
    model: string,
    request: PlanRequest,
    refusal: (model: string) => string | null = () => null,
  ): RoutePlan | null {
    const plan = this.routes.plan(model, request.session);
    if (!plan) {
      const refused = refusal(model);
      if (refused !== null) fail("model_not_allowed", refused);
      return null;
    }
    const targets = plan.targets.filter((target) => refusal(target.model) === null);
    if (targets.length === 0)
      fail("model_not_allowed", `This key may use no model that ${model} leads to; its owner can allow one`);
    return new RoutePlan(this.router, targets, plan.beginWithinMs, request);
  }
  isSpoken(dialect: DialectName): boolean {
    return this.entries.some(({ backend }) => backend.native?.has(dialect));
  }
  /** Whether a backend that may serve this name takes the dialect's requests unchanged. */
  speaks(asked: string, dialect: DialectName): boolean {
    const model = this.aliases.resolve(asked);
    const targets = this.routes.targetsOf(model)?.map((target) => target.model) ?? [model];
    return targets.some((target) => this.router.speaks(target, dialect));
  }
  /** The model or model route that a name stands for, if there is one, healthy or not. */
  knownModel(asked: string): string | null {
    const model = this.aliases.resolve(asked);
    return this.router.isListed(model) || this.routes.has(model) ? model : null;
  }
  /** A backend reported impossible usage. It stays in use; its operator sees it in the list of backends. */
  suspect({ entry }: Route, problem: string, requestId: string): void {
    const { bus, clock, log } = this.options;
    const atMs = clock.now();
    const before = entry.suspicion;
    const { name } = entry.config;
    this.suspicions++;
    bus.publish(SUSPECTED, JSON.stringify({ name, problem, requestId, atMs }));
    if (before && atMs - before.atMs < SUSPICION_LOGGED_EVERY_MS) return;
    const times = (before?.count ?? 0) + 1;
    log.warn("a backend reports implausible usage", { backend: name, problem, request_id: requestId, times });
  }

  backendNamed(name: string): Backend | null {
    return this.#find(name)?.backend ?? null;
  }
  /** Reports a call about a job that a backend is working on, which shows whether the backend is there. Null: it succeeded. */
  callEnded(name: string, payer: RouteRequest["payer"], error: unknown): void {
    const entry = this.#find(name);
    if (!entry) return;
    const facts = { model: ALL, payer: payerIdOf({ payer }), atMs: this.options.clock.now() };
    if (error === null) this.#circuits.tell(entry, { ...facts, kind: "succeeded" });
    else if (error instanceof BackendError && (error.kind === "connect" || error.kind === "transport")) {
      const failure = { cause: error.message, isUnreached: error.kind === "connect", tested: null };
      this.#circuits.tell(entry, { ...facts, kind: "failed", ...failure });
    }
  }
  isOwnType(type: string): boolean {
    const { factory } = this.options;
    const plan = factory.plan(type);
    return plan !== null && "kind" in plan && factory.kinds.get(plan.kind)?.isOwn?.({ type }) === true;
  }
  /** Model routes with a target that can serve, and models of healthy backends. */
  callableModels(): RoutableModel[] {
    const routed = this.routes.list().flatMap(({ name: id, targets }) => {
      const owned_by = targets.map((target) => this.router.serverOf(target)).find((name) => name !== null);
      return owned_by === undefined || owned_by === null ? [] : { id, owned_by, available: true };
    });
    const names = new Set(routed.map(({ id }) => id));
    return [...routed, ...this.router.routableModels().filter(({ id }) => !names.has(id))];
  }

  /** Adds or replaces a backend, which is routable after its first successful probe. */
  async register(registration: Registration, { persist = true } = {}): Promise<Entry> {
    const stored = complete(registration);
    const config = configOf(this.options.factory, stored);
    const { factory, clock, bus, log } = this.options;
    const address = factory.isBridgeUrl(config.url)
      ? this.#tunnelUrl(config, await factory.bridge.connect(config.url))
      : config.url;
    this.#requireRoom(config.name);
    const saving = this.#exclusively(async () => {
      if (!persist) return null;
      return this.#store.save(stored, isoTime(clock.now())).catch((error) => {
        log.error("saving a backend failed; it will be lost on restart", { backend: config.name, error });
        return null;
      });
    });
    // A slow database does not hold it up: its index follows when the database has answered.
    const index = await within(clock, SAVED_WITHIN_MS, saving);
    const entry = this.#put(config, {
      address,
      index: index ?? this.#unsavedIndex(config.name),
      persisted: index !== null,
    });
    this.#circuits.renew(entry);
    void saving.then((saved) => {
      if (saved === null || entry.removed) return;
      entry.persisted = true;
      if (entry.index !== saved) this.#renumber(entry, saved);
      bus.publish(CHANGED, config.name);
    });
    return entry;
  }

  /** Adds a backend that is not saved, such as a model on a node. Resolves after its first probe. */
  async adopt(backend: Backend, { yields }: { yields: boolean }): Promise<void> {
    const { config } = backend;
    const index = await this.#store.indexOf(config.name).catch((error) => {
      this.options.log.error("numbering a backend failed", { backend: config.name, error });
      return this.#unsavedIndex(config.name);
    });
    const entry = newEntry(this.#kindOf(config), { config, index, backend, isAdopted: true, yields });
    await this.#exclusively(async () => {
      this.#requireRoom(config.name);
      if (this.#find(config.name)?.persisted)
        fail(
          "app_error",
          `The name ${config.name} is a registered backend's; register that one under another`,
        );
      this.#place(entry);
    });
    this.#circuits.ask(config.name);
    await this.#health.probe(entry);
  }

  /** The models of an adopted backend may have changed. Resolves after a probe. */
  async recheck(backend: Backend, { yields }: { yields: boolean }): Promise<void> {
    const entry = this.entries.find((each) => each.backend === backend);
    if (!entry) return;
    if (entry.yields !== yields) {
      entry.yields = yields;
      this.router.changed();
      this.router.joined(entry);
    }
    await this.#health.recheck(entry);
  }

  /** Removes an adopted backend, but not another one that has its name by now. */
  async dismiss(backend: Backend): Promise<void> {
    await this.#exclusively(async () => {
      const entry = this.entries.find((each) => each.backend === backend);
      if (entry) this.#drop(entry);
    });
  }

  async removeAt(index: number): Promise<void> {
    const name = await this.#exclusively(async () => {
      const entry = this.entries.find((each) => each.index === index) ?? null;
      if (entry?.isAdopted)
        fail("conflict", `${entry.config.name} is served by GPU nodes; stop the model with agents.stop`);
      const isUnsaved = entry !== null && !entry.persisted;
      const removed = isUnsaved ? entry.config.name : await this.#removeSaved(index, entry);
      if (entry && removed !== null) this.#drop(entry);
      return removed;
    });
    if (name === null) {
      await this.reload();
      fail("not_found", "Backend not found at given index");
    }
    this.options.bus.publish(CHANGED, name);
  }

  /** Returns the name of the removed backend; null: none has the index. */
  #removeSaved(index: number, entry: Entry | null): Promise<string | null> {
    return this.#store.remove(index).catch((error) => {
      if (!entry) throw error;
      const backend = entry.config.name;
      this.options.log.error("deleting a backend failed; it will return on restart", { backend, error });
      return backend;
    });
  }

  /** What is left out stays. The key is never sent to another server. */
  async update(name: string, patch: Omit<Registration, "name">): Promise<Entry> {
    this.#named(name);
    const stored = await this.#stored(name);
    if (!stored) fail("conflict", `${name} was not registered by hand, so it cannot be changed`);
    return this.register(changed(stored, patch));
  }

  /** Tests a server and registers it under a new name; `register` would replace a backend of the same name. */
  async add(given: Registration): Promise<Entry> {
    const { name } = complete(given);
    const problem = `a backend named ${name} exists already; choose another name, or edit that one`;
    if (this.#find(name)) failParam("name", problem, "conflict");
    if (given.seen !== undefined) return this.register(given);
    const tested = await this.test(given).catch(() => null);
    return this.register({ ...given, seen: tested?.seen ?? null });
  }

  /** Tests a new server, or a registered backend with changes. The result for an unchanged one is saved. */
  async test(
    given: Registration,
    { model = null, tell = () => {} }: { model?: string | null; tell?(trial: Trial): void } = {},
  ): Promise<Tested> {
    const stored = await this.#stored(given.name);
    const wanted = complete(stored ? changed(stored, given) : given);
    const { seen: _, ...config } = configOf(this.options.factory, wanted);
    const { factory, clock } = this.options;
    if (factory.isBridgeUrl(config.url))
      fail("missing_fields", "`url`: a bridge URL can be tested only by registering it");
    const { create } = factory;
    const isChatting = !config.capabilities?.length || config.capabilities.includes("chat");
    const { dialects } = this.#kindOf(config);
    if (!dialects || !isChatting) {
      const backend = create(config);
      const probe = await this.#health.ask(backend).finally(() => backend.close());
      const models = probe.models.map(({ id }) => id);
      const detail = probe.state === "Healthy" ? null : (probe.detail ?? null);
      return { ok: probe.state === "Healthy", detail, latencyMs: probe.latencyMs, models, seen: null };
    }
    const at = isoTime(clock.now());
    const found = await firstContact({ config, dialects, model, create, at, clock, tell });
    // A backend that was changed or removed meanwhile is not the one that was tested.
    const isSame = stored && Bun.deepEquals(await this.#stored(stored.name), stored);
    if (isSame && given.url === undefined) await this.register({ ...stored, seen: found.seen });
    return found;
  }

  async #stored(name: string | undefined): Promise<SavedBackend | undefined> {
    return (await this.#store.list()).find((each) => each.name === name);
  }

  /** The registered backends, with only the names of the fields that may be secret. */
  async configured() {
    const stored = await this.#store.list();
    return stored.map(({ apiKey, headers = {}, seen: _, workflow: __, index: ___, url, ...fields }) => ({
      ...fields,
      url: shownUrl(url),
      secrets: [
        ...(apiKey === null ? [] : ["api_key"]),
        ...(shownUrl(url) === url ? [] : ["url"]),
        ...Object.keys(headers).map((name) => `headers.${name}`),
      ],
    }));
  }

  /** Returns which fields a registration or an update would change. Refuses what they refuse, but writes nothing. */
  async changes(): Promise<(given: Registration) => string[]> {
    const all = new Map((await this.#store.list()).map((stored) => [stored.name, stored]));
    return (given) => {
      const stored = all.get(given.name ?? "");
      const before: Partial<StoredBackend> = stored ? complete(stored) : {};
      const after = complete(stored ? changed(stored, given) : given);
      configOf(this.options.factory, after);
      const fields = Object.keys(given) as (keyof StoredBackend & keyof Registration)[];
      return fields
        .filter((field) => given[field] !== undefined)
        .filter((field) => !Bun.deepEquals(after[field] ?? null, before[field] ?? null))
        .map((field) => (field === "apiKey" ? "api_key" : field));
    };
  }

  async probeNow(name: string, { resume }: { resume?: boolean }): Promise<void> {
    const entry = this.#named(name);
    if (resume) this.#circuits.renew(entry);
    await this.#health.probe(entry);
  }

  #named(name: string): Entry {
    return this.#find(name) ?? fail("not_found", `No backend is named ${name}`);
  }

  async removeNamed(name: string): Promise<boolean> {
    const entry = this.#find(name);
    if (entry) await this.removeAt(entry.index);
    return entry !== undefined;
  }

  /** Reads the list from the database; backends that were not saved stay. */
  reload(): Promise<void> {
    return this.#exclusively(async () => {
      if (this.#closed) return;
      const rows = await this.#store.list();
      const names = new Set(rows.map(({ name }) => name));
      for (const entry of [...this.entries]) {
        if (entry.persisted && !names.has(entry.config.name)) this.#drop(entry);
      }
      for (const row of rows) this.#restore(row);
    }).catch((error) => this.options.log.error("reading the list of backends failed", { error }));
  }

  #restore({ index, ...row }: SavedBackend): void {
    const { factory, log } = this.options;
    const plan = factory.plan(row.type);
    if (!plan || !("kind" in plan)) {
      log.warn("a saved backend has a type that no longer exists", { backend: row.name, type: row.type });
      return;
    }
    const config = configOf(this.options.factory, row);
    const known = this.#find(config.name);
    if (known && Bun.deepEquals(known.config, config)) {
      known.persisted = true;
      if (known.index !== index) this.#renumber(known, index);
      return;
    }
    if (!factory.isBridgeUrl(config.url)) {
      this.#put(config, { address: config.url, index, persisted: true });
      return;
    }
    // A start does not wait for the tunnel: until it is up, the backend is listed but not routable.
    const entry = this.#put(config, { address: null, index, persisted: true });
    factory.bridge.connect(config.url).then(
      (port) => this.#move(entry, this.#tunnelUrl(config, port)),
      (error) => log.warn("a saved backend's tunnel is down", { backend: row.name, error }),
    );
  }

  #kindOf({ kind }: BackendConfig): BackendKind {
    return this.options.factory.kinds.get(kind)!;
  }

  #tunnelUrl(config: BackendConfig, port: number): string {
    return `${this.#kindOf(config).schemes[0]}//127.0.0.1:${port}`;
  }

  #put(
    config: BackendConfig,
    { address, index, persisted }: { address: string | null; index: number; persisted: boolean },
  ): Entry {
    const { factory } = this.options;
    const backend = !config.enabled
      ? idle(config, DISABLED)
      : address === null
        ? idle(config, "the bridge tunnel is not up")
        : factory.create({ ...config, url: address });
    const entry = newEntry(this.#kindOf(config), { config, index, backend, persisted });
    this.#place(entry);
    if (factory.isBridgeUrl(config.url)) {
      entry.stopWatching = factory.bridge.watch({
        name: config.name,
        url: config.url,
        onPort: (port) => this.#move(entry, this.#tunnelUrl(config, port)),
      });
    }
    this.#health.probeSoon(entry);
    return entry;
  }

  /** Replaces an entry of the same name. */
  #place(entry: Entry): void {
    const replaced = this.#find(entry.config.name);
    if (replaced) {
      this.entries.splice(this.entries.indexOf(replaced), 1);
      this.#retire(replaced);
    }
    this.entries.push(entry);
    if (entry.backend.keys) entry.backend.keys.onRefused = () => this.#circuits.sendKeys(entry);
    this.#renumber(entry, entry.index);
  }

  #renumber(entry: Entry, index: number): void {
    entry.index = index;
    this.entries.sort((a, b) => a.index - b.index);
    this.router.changed();
  }

  #unsavedIndex(name: string): number {
    const known = this.#find(name);
    return known ? known.index : Math.max(UNSAVED_INDEX_MIN, 1 + (this.entries.at(-1)?.index ?? 0));
  }

  #requireRoom(name: string): void {
    if (this.entries.length >= BACKENDS_MAX && !this.#find(name))
      fail("app_error", `There are ${BACKENDS_MAX} backends already, the maximum; remove one first`);
  }

  /** The tunnel moved to another port: the backend is not routable until it answers there. */
  #move(entry: Entry, address: string): void {
    if (entry.removed || !entry.config.enabled) return;
    entry.backend.close();
    entry.backend = this.options.factory.create({ ...entry.config, url: address });
    // What went wrong at the old port says nothing about the new one.
    entry.circuits = new Circuits();
    entry.state = "Unhealthy";
    entry.detail = "the tunnel has moved; not probed yet";
    this.router.changed();
    this.#health.probeSoon(entry);
  }

  #drop(entry: Entry): void {
    const index = this.entries.indexOf(entry);
    if (index !== -1) this.entries.splice(index, 1);
    this.#retire(entry);
    this.router.changed();
  }

  #retire(entry: Entry): void {
    entry.removed = true;
    entry.stopWatching?.();
    entry.backend.close();
  }

  #find(name: string): Entry | undefined {
    return this.entries.find(({ config }) => config.name === name);
  }

  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#turn.then(work);
    this.#turn = run.catch(() => {});
    return run;
  }
}

/** For a backend that is disabled, or whose tunnel is not up yet. */
const idle = (config: BackendConfig, detail: string): Backend => ({
  config,
  probe: async () => ({ state: "Unhealthy", models: [], detail }),
  close() {},
});
