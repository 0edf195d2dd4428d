/** The tool while it runs: its settings, the browser it starts when one is needed, and the queue of operations. */

import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineName, EngineTransport, ResolvedEngine } from "./engines/contract.ts";
import { ToolError } from "./errors.ts";
import type { ResolveHost } from "./launch/address-gate.ts";
import { type OpenedEngine, openEngine } from "./launch/open.ts";
import { Browser } from "./page/browser.ts";
import { Deadline } from "./page/deadline.ts";
import { navigate } from "./page/navigate.ts";
import { Notices } from "./page/notices.ts";
import type { DialogPolicy } from "./page/page.ts";
import type { UrlPolicy } from "./policy/url-policy.ts";

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
  startUrl: string;
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
  startUrl: "about:blank",
  tokensMax: 8_000,
  env: process.env,
};

/** Snapshots are mostly short words, brackets and numbers; measured, a token is rarely less than three characters. */
const charsPerToken = 3;
const waitingMax = 100;
const endMsMax = 5_000;
const startPageTimeoutMs = 30_000;
/** What an action tells of the changes that it made; a snapshot tells more. */
const changesCharsMax = 3_000;

/** What loading the modules has left behind. There is time for it while the browser starts. */
function giveMemoryBack(): void {
  Bun.gc(true);
  Bun.shrink();
}

export class Session {
  readonly options: SessionOptions;
  engine: ResolvedEngine | null = null;
  /** Outlives the browser, so that a crash can be reported. */
  readonly notices = new Notices();
  /** What was last reported to an MCP client about the page. */
  readonly told: { page?: string; tabs?: string } = {};
  #browser: Promise<Browser> | null = null;
  #transport: EngineTransport | null = null;
  #running: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #closed = false;

  constructor(options: Partial<SessionOptions> = {}) {
    this.options = { ...sessionDefaults, ...options };
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
    const opened = await openEngine(this.options, this.notices);
    this.engine = opened.engine;
    this.#transport = opened.transport;
    setTimeout(giveMemoryBack, 0);
    if (this.#closed) await opened.transport.close();
    const downloadsDir =
      this.options.downloadsDir ??
      join(opened.profileDir ?? join(tmpdir(), "browser-tool-downloads"), "downloads");
    const browser = await this.#connect(opened, downloadsDir);
    await this.#openStartPage(browser);
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

  async #connect(opened: OpenedEngine, downloadsDir: string): Promise<Browser> {
    const { options } = this;
    let isUp = false;
    const browser = new Browser(opened.transport, {
      notices: this.notices,
      changesCharsMax: Math.min(changesCharsMax, this.contentCharsMax / 2),
      viewport: options.headful ? null : options.viewport,
      dialogPolicy: options.dialogs,
      urlPolicy: options.urlPolicy,
      proxyLogin: opened.proxyLogin,
      failureOf: opened.failureOf,
      downloadsDir,
    });
    browser.connection.onClose = (reason) => {
      this.#browser = null;
      opened.dispose();
      // Callers that wait for the browser see the failure in their own call.
      if (isUp && !this.#closed && this.#waiting === 0)
        this.notices.add(
          "crash",
          `The browser ended between calls (${reason}); a new one was started, its pages are gone.`,
        );
    };
    try {
      await browser.start();
      isUp = true;
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
    const turn = this.#running.then(work, work);
    this.#running = turn.catch(() => {});
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

  async close(): Promise<void> {
    this.#closed = true;
    if (this.options.profileDir && this.#browser) await this.#endInOrder();
    // One that is still starting is not waited for.
    await this.#transport?.close();
    await this.#browser?.catch(() => null);
  }
}
