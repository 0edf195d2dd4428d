/**
 * The tool while it runs: its settings, the browser it starts when one is needed, and the queue of operations. Named
 * sessions share the browser of the unnamed one, each in a context of its own: no cookie, tab or log is seen by another.
 */

import { tmpdir } from "node:os";
import { join } from "node:path";
import { CdpConnection } from "./cdp/connection.ts";
import type { EngineName, EngineTransport, ResolvedEngine } from "./engines/contract.ts";
import { ToolError } from "./errors.ts";
import type { ResolveHost } from "./launch/address-gate.ts";
import { type OpenedEngine, openEngine } from "./launch/open.ts";
import { Browser } from "./page/browser.ts";
import { Deadline } from "./page/deadline.ts";
import { navigate } from "./page/navigate.ts";
import { Notices } from "./page/notices.ts";
import type { DialogPolicy } from "./page/page.ts";
import { noSecrets, type Secrets } from "./policy/secrets.ts";
import type { UrlPolicy } from "./policy/url-policy.ts";
import type { StateFile } from "./state.ts";

export interface SessionOptions {
  backend?: EngineName | "auto";
  headful: boolean;
  proxy?: string;
  viewport: { width: number; height: number };
  dialogs: DialogPolicy;
  urlPolicy: UrlPolicy;
  ignoreHttpsErrors: boolean;
  /** Where downloads go; null: beside the profile, and gone with it. */
  downloadsDir: string | null;
  /** The only folder whose files may be given to pages; null: none. */
  uploadsDir: string | null;
  /** A profile that stays, with its cookies and storage; null: a throw-away one. */
  profileDir: string | null;
  /** A running Chrome to use in place of one that is started; it is left running. */
  attachUrl: string | null;
  /** Cookies and storage are taken from this file at the start, and the unnamed session's are kept in it at the end. */
  state: StateFile | null;
  secrets: Secrets;
  startUrl: string;
  /** A named session that nobody has used for so long is ended. */
  sessionIdleMs: number;
  /** Upper bound on what one result may cost the model that reads it. */
  tokensMax: number;
  env: Record<string, string | undefined>;
  /** How names of hosts are looked up; absent: as the system does it. */
  resolveHost?: ResolveHost;
  onProgress?: (text: string) => void;
}

export const sessionDefaults: SessionOptions = {
  headful: false,
  viewport: { width: 1280, height: 720 },
  dialogs: "accept",
  urlPolicy: { allowFile: false, allowLinkLocal: false },
  ignoreHttpsErrors: false,
  downloadsDir: null,
  uploadsDir: null,
  profileDir: null,
  attachUrl: null,
  state: null,
  secrets: noSecrets,
  startUrl: "about:blank",
  sessionIdleMs: 10 * 60_000,
  tokensMax: 8_000,
  env: process.env,
};

/** Snapshots are mostly short words, brackets and numbers; measured, a token is rarely less than three characters. */
const charsPerToken = 3;
const waitingMax = 100;
const endMsMax = 5_000;
const startPageTimeoutMs = 30_000;
const namedMax = 50;
const endedNamesMax = 1_000;
/** What an action tells of the changes that it made; a snapshot tells more. */
const changesCharsMax = 3_000;

/** What loading the modules has left behind. There is time for it while the browser starts. */
function giveMemoryBack(): void {
  Bun.gc(true);
  Bun.shrink();
}

export class Session {
  readonly options: SessionOptions;
  /** "" for the unnamed session. */
  readonly name: string;
  lastUsedMs = performance.now();
  /** Outlives the browser, so that a crash can be reported. */
  readonly notices = new Notices();
  /** What was last reported to an MCP client about the page. */
  readonly told: { page?: string; tabs?: string } = {};
  readonly #unnamed: Session;
  readonly #named = new Map<string, Session>();
  /** Names of sessions that were ended for being idle, so that whoever comes back is told. */
  readonly #ended = new Set<string>();
  #browser: Promise<Browser> | null = null;
  /** The browser as far as it has started. */
  #running: Browser | null = null;
  #engine: ResolvedEngine | null = null;
  #transport: EngineTransport | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #closed = false;

  constructor(options: Partial<SessionOptions> = {}, named?: { name: string; unnamed: Session }) {
    this.options = { ...sessionDefaults, ...options };
    this.name = named?.name ?? "";
    this.#unnamed = named?.unnamed ?? this;
  }

  get engine(): ResolvedEngine | null {
    return this.#unnamed.#engine;
  }

  get sessions(): Session[] {
    return [...this.#unnamed.#named.values()];
  }

  /** The session of this name, which begins when it is first asked for; without a name, this one. */
  named(name: unknown): Session {
    if (name === undefined) return this;
    if (typeof name !== "string" || !/^[\w.-]{1,64}$/.test(name))
      throw new ToolError("invalid_request", "session: must be 1 to 64 letters, digits, dots, - or _");
    this.#endIdle();
    let session = this.#named.get(name);
    if (!session) {
      if (this.#named.size >= namedMax)
        throw new ToolError("busy", `${namedMax} sessions are open. End one that is not needed any more.`);
      session = new Session(this.options, { name, unnamed: this });
      this.#named.set(name, session);
      if (this.#ended.delete(name))
        session.notices.add("closed", `The session "${name}" had ended, being idle; this is a new one.`);
    }
    session.lastUsedMs = performance.now();
    return session;
  }

  #idleTimer: ReturnType<typeof setTimeout> | null = null;

  /** Ends the sessions that are idle, and looks again when the next one may be. */
  #endIdle(): void {
    const { sessionIdleMs } = this.options;
    for (const session of this.#named.values()) {
      if (session.#waiting > 0 || performance.now() - session.lastUsedMs < sessionIdleMs) continue;
      if (this.#ended.size >= endedNamesMax) this.#ended.clear();
      this.#ended.add(session.name);
      void session.close();
    }
    this.#idleTimer ??= setTimeout(() => {
      this.#idleTimer = null;
      if (this.#named.size > 0) this.#endIdle();
    }, sessionIdleMs / 4).unref();
  }

  get charsMax(): number {
    return this.options.tokensMax * charsPerToken;
  }

  /** What a page may fill of a result; the rest is for its address, the open tabs and the events. */
  get contentCharsMax(): number {
    return this.charsMax - this.aroundCharsMax;
  }

  get aroundCharsMax(): number {
    return Math.round(Math.max(this.charsMax / 10, Math.min(1_200, this.charsMax / 2)));
  }

  get isStarted(): boolean {
    return this.#browser !== null;
  }

  /** The browser, started at the first call and again after it was lost. */
  browser(): Promise<Browser> {
    if (this.#closed)
      return Promise.reject(new ToolError("browser_unavailable", "The tool is shutting down."));
    if (!this.#browser) {
      const started = this.#start();
      this.#browser = started;
      started.catch(() => {
        if (this.#browser === started) this.#browser = null;
      });
    }
    return this.#browser;
  }

  async #start(): Promise<Browser> {
    const { state } = this.options;
    const { readState, restoreState } = state ? await import("./state.ts") : {};
    const saved = state && readState!(state);
    const browser = await (this.#unnamed === this ? this.#launch() : this.#openContext());
    if (saved)
      await restoreState!(browser, saved).catch((error: Error) =>
        this.notices.add("blocked", `The state was not restored: ${error.message}`),
      );
    await this.#openStartPage(browser);
    return browser;
  }

  async #launch(): Promise<Browser> {
    const opened = await openEngine(this.options, (text, host) =>
      (this.sessions.find((each) => each.#running?.network.isAsking(host)) ?? this).notices.add(
        "blocked",
        text,
      ),
    );
    this.#engine = opened.engine;
    this.#transport = opened.transport;
    setTimeout(giveMemoryBack, 0);
    if (this.#closed) await opened.transport.close();
    return this.#connect(opened);
  }

  /** A named session has its part of the browser: as apart from the others as a private window. */
  async #openContext(): Promise<Browser> {
    const { connection, options } = await this.#unnamed.browser();
    const context = { disposeOnDetach: true };
    const { browserContextId } = await connection.root.send("Target.createBrowserContext", context);
    const browser = new Browser(connection, {
      ...options,
      notices: this.notices,
      contextId: browserContextId,
      others: () => [],
    });
    this.#running = browser;
    if (this.#closed) await browser.close();
    await browser.start();
    return browser;
  }

  /** A start page that cannot be opened is reported with the first result, and the browser is used all the same. */
  async #openStartPage(browser: Browser): Promise<void> {
    const { startUrl } = this.options;
    if (startUrl === "about:blank") return;
    try {
      await navigate(browser, { url: startUrl, until: "load" }, new Deadline(startPageTimeoutMs));
    } catch (error) {
      browser.notices.add("blocked", `The start page was not opened: ${(error as Error).message}`);
    }
  }

  #lost(notice: string | null): void {
    // Callers that wait for the browser see the failure in their own call.
    if (notice && this.#running && !this.#closed && this.#waiting === 0) this.notices.add("crash", notice);
    this.#browser = null;
    this.#running = null;
  }

  async #connect(opened: OpenedEngine): Promise<Browser> {
    const { options } = this;
    const browser = new Browser(new CdpConnection(opened.transport), {
      contextId: null,
      others: () => this.sessions.flatMap((each) => each.#running ?? []),
      notices: this.notices,
      changesCharsMax: Math.min(changesCharsMax, this.contentCharsMax / 2),
      isAttached: options.attachUrl !== null,
      viewport: options.headful || options.attachUrl ? null : options.viewport,
      dialogPolicy: options.dialogs,
      urlPolicy: options.urlPolicy,
      secrets: options.secrets,
      proxyLogin: opened.proxyLogin,
      failureOf: opened.failureOf,
      downloadsDir:
        options.downloadsDir ??
        join(opened.profileDir ?? join(tmpdir(), "browser-tool-downloads"), "downloads"),
    });
    browser.connection.onClose = (reason) => {
      opened.dispose();
      const notice = `The browser ended between calls (${reason}); a new one was started, its pages are gone.`;
      for (const session of [this, ...this.sessions]) session.#lost(notice);
    };
    try {
      await browser.start();
      this.#running = browser;
    } catch (error) {
      await browser.close();
      throw browser.connection.closedReason && !(error instanceof ToolError && error.code === "timeout")
        ? new ToolError(
            "browser_unavailable",
            `The browser did not start: ${browser.connection.closedReason}`,
          )
        : error;
    }
    return browser;
  }

  /** One operation at a time acts on the page; the others wait their turn. */
  async exclusive<T>(work: () => Promise<T>): Promise<T> {
    if (this.#waiting >= waitingMax)
      throw new ToolError(
        "busy",
        `${waitingMax} operations are already waiting. Try again when some have finished.`,
      );
    this.#waiting++;
    const turn = this.#turn.then(work, work);
    this.#turn = turn.catch(() => {});
    try {
      return await turn;
    } finally {
      this.#waiting--;
    }
  }

  /** A browser that is killed has not written its last cookies yet. */
  async #endInOrder(): Promise<void> {
    const browser = await this.#browser?.catch(() => null);
    if (!browser) return;
    const ended = new Promise<void>((resolve) => {
      browser.connection.onClose = () => resolve();
    });
    browser.connection.root.tell("Browser.close");
    await Promise.race([ended, Bun.sleep(endMsMax)]);
  }

  async #saveState(file: StateFile, browser: Browser): Promise<void> {
    const { readState, saveState } = await import("./state.ts");
    const saved = saveState(browser, file, readState(file)).catch((error: Error) =>
      this.options.onProgress?.(`The state was not saved: ${error.message}`),
    );
    await Promise.race([saved, Bun.sleep(endMsMax)]);
  }

  /** Ends a named session; its name then stands for a new one. */
  async end(): Promise<void> {
    if (this.name === "") throw new ToolError("invalid_request", "session: name the session to end.");
    await this.close();
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#unnamed !== this) {
      this.#unnamed.#named.delete(this.name);
      await this.#running?.close();
      this.#lost(null);
      return;
    }
    if (this.options.state && this.#running) await this.#saveState(this.options.state, this.#running);
    if (this.options.profileDir && this.#browser) await this.#endInOrder();
    // One that is still starting is not waited for.
    await this.#transport?.close();
    await this.#browser?.catch(() => null);
  }
}
