/** A running browser: its pages, which of them is the active one, and what replaces one that is lost. */
import { linkSync, mkdirSync, unlinkSync } from "node:fs";
import { basename, join, parse } from "node:path";
import { ConsoleCapture } from "../capture/console.ts";
import { NetworkCapture } from "../capture/network.ts";
import {
  type CdpConnection,
  type CdpSession,
  callTimeoutMsDefault,
  type EventParams,
} from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import type { ProxyLogin } from "../launch/proxy.ts";
import { RequestGate } from "../policy/enforce.ts";
import type { Secrets } from "../policy/secrets.ts";
import type { UrlPolicy } from "../policy/url-policy.ts";
import { Emulation, type PermissionName } from "./emulation.ts";
import type { Notices } from "./notices.ts";
import { type DialogPolicy, type Numbering, Page } from "./page.ts";
import { autoAttach } from "./targets.ts";
import type { Recording } from "./video.ts";

const startTimeoutMs = 30_000;
/** A page that is merely busy answers within the first, one whose script was just stopped within the second. */
const firstProbeMs = 300;
const laterProbeMs = 1_000;
/** What a stopped script had written is read first, so its page may be long in answering. */
const laterProbesMax = 4;
const reopenMsMax = 5_000;
/**
 * Each context has a window of its own, whose pixels cost memory though nobody sees them: the page has the size that
 * is emulated. Twenty sessions take 1.2 times the memory of twenty tabs with it, 1.3 times without.
 */
const smallWindow = { width: 100, height: 100, newWindow: true };
/** A page may open endless windows; those beyond this are closed. */
const pagesMax = 200;

export interface BrowserOptions {
  /** The browser's context that keeps a named session apart; null for the unnamed session, which has the browser's own. */
  contextId: string | null;
  /** The named sessions of the same browser. */
  others: () => Browser[];
  /** The browser is somebody's own: only pages that the tool opens, or is asked to take over, are touched. */
  isAttached: boolean;
  viewport: { width: number; height: number } | null;
  dialogPolicy: DialogPolicy;
  urlPolicy: UrlPolicy;
  secrets: Secrets;
  proxyLogin: ProxyLogin | null;
  /** Why a connection to a host failed, where the browser itself cannot tell. */
  failureOf: (host: string) => string | null;
  downloadsDir: string;
  changesCharsMax: number;
  notices: Notices;
}

export class Browser {
  readonly connection: CdpConnection;
  readonly notices: Notices;
  readonly console = new ConsoleCapture();
  readonly network: NetworkCapture;
  readonly pages = new Map<string, Page>();
  downloadsBegun = 0;
  readonly options: BrowserOptions;
  readonly gate: RequestGate;
  readonly emulation: Emulation;
  granted: PermissionName[] = [];
  recording: Recording | null = null;
  readonly #numbering: Numbering = { mainRefs: { last: 0 }, framesNamed: 0 };
  #activeId: string | null = null;
  #recovery: Promise<void> | null = null;
  #arrivals = new Set<() => void>();
  /** Pages being opened by the tool itself; any other new page is a popup. */
  #creating = 0;

  constructor(connection: CdpConnection, options: BrowserOptions) {
    this.options = options;
    this.notices = options.notices;
    this.emulation = new Emulation(options.viewport);
    this.network = new NetworkCapture((url, error) => this.explainFailure(url, error));
    const { urlPolicy: policy, proxyLogin } = options;
    this.gate = new RequestGate({ policy, proxyLogin, notices: this.notices });
    this.connection = connection;
    const { root } = connection;
    root.on("Target.attachedToTarget", (event) => this.#attached(event));
    if (options.isAttached)
      root.on("Target.targetCreated", ({ targetInfo: { type, targetId, openerId = "" } }) => {
        if (type === "page" && this.pages.has(openerId)) void this.#take(targetId).catch(() => {});
      });
    root.on("Target.detachedFromTarget", ({ sessionId }) => this.#detached(sessionId));
    root.on("Browser.downloadWillBegin", (event) => this.#downloadBegins(event));
    root.on("Browser.downloadProgress", (event) => this.#downloadProgresses(event));
  }

  /** Where a file that the tool makes goes: beside the downloads. */
  fileFor(kind: string): string {
    const { downloadsDir } = this.options;
    mkdirSync(downloadsDir, { recursive: true });
    return join(downloadsDir, `${new Date().toISOString().replace(/[:.]/g, "-")}.${kind}`);
  }

  /** Errors of connections that the tool makes for the browser, as they would be without that. */
  explainFailure(url: string, netError: string): string {
    if (!/SOCKS|PROXY/.test(netError)) return netError;
    const host = URL.parse(url)?.hostname.replace(/^\[|\]$/g, "") ?? "";
    return this.options.failureOf(host) ?? netError;
  }

  async start(): Promise<void> {
    const { root } = this.connection;
    const isOwn = !this.options.isAttached || this.options.contextId !== null;
    root.tell("Browser.setDownloadBehavior", {
      behavior: isOwn ? "allowAndName" : "default",
      ...this.context,
      downloadPath: this.options.downloadsDir,
      eventsEnabled: true,
    });
    if (this.options.contextId !== null) return;
    if (this.options.isAttached) {
      await root.send("Target.setDiscoverTargets", { discover: true }, startTimeoutMs);
      return;
    }
    await root.send("Target.setAutoAttach", autoAttach, startTimeoutMs).catch((error: Error) => {
      // An engine without it announces its pages by itself.
      if (!(error instanceof ToolError && error.code === "not_supported")) throw error;
    });
  }

  /** Names the context to commands of the whole browser. */
  get context(): { browserContextId?: string } {
    return this.options.contextId === null ? {} : { browserContextId: this.options.contextId };
  }

  /** What belongs to no named session is the unnamed one's. */
  #owns(isOf: (browser: Browser) => boolean): boolean {
    return this.options.contextId === null ? !this.options.others().some(isOf) : isOf(this);
  }

  /** The page that operations act on; a lost one has been replaced by the time this resolves. */
  async page(): Promise<Page> {
    await this.#recovery;
    const active = this.#activeId ? this.pages.get(this.#activeId) : undefined;
    const usable =
      active?.crashed === false ? active : [...this.pages.values()].reverse().find((page) => !page.crashed);
    if (!usable) return this.#firstPage();
    if (usable.isBlocked) return this.#reopen(usable);
    this.#activeId = usable.id;
    await usable.ready;
    return usable;
  }

  /** Chromium opens a first page on its own. We wait for it, and open one only if it does not come. */
  async #firstPage(): Promise<Page> {
    const { contextId, isAttached } = this.options;
    if (this.pages.size === 0 && this.#activeId === null && contextId === null && !isAttached) {
      const arrived = await new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => resolve(false), 5_000);
        this.#arrivals.add(() => {
          clearTimeout(timer);
          resolve(true);
        });
      });
      if (arrived) return this.page();
    }
    return this.newPage();
  }

  async newPage(): Promise<Page> {
    this.#creating++;
    try {
      const isSmall = this.options.contextId !== null && this.options.viewport !== null;
      const wanted = { url: "about:blank", ...this.context, ...(isSmall ? smallWindow : {}) };
      const { targetId } = await this.connection.root.send("Target.createTarget", wanted);
      if (this.options.isAttached) await this.#take(targetId);
      const page = this.pages.get(targetId);
      if (!page) throw new ToolError("browser_unavailable", "The browser opened no page. Call again.");
      this.#activeId = targetId;
      await page.ready;
      return page;
    } finally {
      this.#creating--;
    }
  }

  async #take(targetId: string): Promise<void> {
    if (!this.pages.has(targetId))
      await this.connection.root.send("Target.attachToTarget", { targetId, flatten: true });
  }

  /** In somebody's own browser: the page whose address or title holds this text. */
  async takeOver(text: string): Promise<Page | undefined> {
    if (!this.options.isAttached) return undefined;
    const { targetInfos } = await this.connection.root.send("Target.getTargets", {});
    const found = targetInfos.find(
      ({ type, url, title }) =>
        type === "page" && `${url} ${title}`.toLowerCase().includes(text.toLowerCase()),
    );
    if (!found) return undefined;
    this.#creating++;
    await this.#take(found.targetId).finally(() => this.#creating--);
    const page = this.pages.get(found.targetId);
    await page?.ready;
    return page;
  }

  async activate(page: Page, timeoutMs: number): Promise<void> {
    this.#activeId = page.id;
    // A page in the background gets no input, so it has to be in front before it is acted on.
    await page.session.send("Page.bringToFront", undefined, timeoutMs).catch(() => {});
  }

  get activeId(): string | null {
    return this.#activeId;
  }

  /** All at once: the browser takes its time for each. */
  async closePages(pages: readonly Page[], timeoutMs = callTimeoutMsDefault): Promise<void> {
    const { root } = this.connection;
    // With its last page the browser would end the session of its cookies.
    if ([...this.pages.values()].every((page) => pages.includes(page))) await this.newPage();
    const closed = pages.map((page) => root.send("Target.closeTarget", { targetId: page.id }, timeoutMs));
    for (const page of pages) {
      const opener = page.openerId ? this.pages.get(page.openerId) : undefined;
      const wasActive = this.#activeId === page.id;
      this.#forget(page, new ToolError("page_closed", "The page was closed."));
      if (opener && wasActive) this.#activeId = opener.id;
    }
    await Promise.all(closed.map((each) => each.catch(() => {})));
  }

  async close(): Promise<void> {
    const { contextId } = this.options;
    if (contextId === null) return this.connection.close();
    const { root } = this.connection;
    await root.send("Target.disposeBrowserContext", { browserContextId: contextId }).catch(() => {});
  }

  /**
   * After a call ran out of time: script that never ends is stopped, and a page that does not come back is replaced.
   * Runs in the background; the next operation waits for it.
   */
  recover(page: Page): void {
    if (this.#recovery || page.crashed || page.closed) return;
    this.#recoverBy(this.#revive(page));
  }

  recoverActive(): void {
    const page = this.#activeId ? this.pages.get(this.#activeId) : undefined;
    if (page) this.recover(page);
  }

  /** The page to leave for another address: one that is stuck is freed first, or given up for a new one. */
  async pageToLeave(): Promise<Page> {
    const page = await this.page();
    if (await this.#answers(page, firstProbeMs)) return page;
    this.recover(page);
    return this.page();
  }

  /** A new page in place of one that is lost for good. */
  async giveUp(page: Page): Promise<Page> {
    this.notices.add(
      "hang",
      `The page ${page.mainFrame.url.slice(0, 200)} could not be left and was given up.`,
    );
    await this.#replace(page);
    return this.page();
  }

  /** What fails here fails again, and is reported, in the operation that needs the page. */
  #recoverBy(work: Promise<void>): void {
    this.#recovery = work
      .catch(() => {})
      .finally(() => {
        this.#recovery = null;
      });
  }

  async #revive(page: Page): Promise<void> {
    // A page on its way elsewhere answers nothing until the next document comes, which it may never do.
    if (page.isNavigating) page.session.tell("Page.stopLoading");
    if (await this.#answers(page, firstProbeMs)) return;
    page.session.tell("Runtime.terminateExecution");
    const stoppedMs = performance.now();
    // The first script after the stop may be the one that is stopped, hence a second look.
    for (let probes = 0; probes < 2 || (page.isWriting(stoppedMs) && probes < laterProbesMax); probes++) {
      if (!(await this.#answers(page, laterProbeMs))) continue;
      this.notices.add("hang", "The page did not respond; its running script was stopped.");
      return;
    }
    this.notices.add(
      "hang",
      `The page ${page.mainFrame.url} did not respond and was replaced by a blank one.`,
    );
    await this.#replace(page);
  }

  async #answers(page: Page, timeoutMs: number): Promise<boolean> {
    try {
      await page.session.send("Runtime.evaluate", { expression: "1" }, timeoutMs);
      return true;
    } catch {
      return false;
    }
  }

  async #replace(page: Page): Promise<void> {
    this.#forget(page, new ToolError("page_crashed", "The page was lost and replaced by a blank one."));
    await this.newPage();
    this.connection.root.tell("Target.closeTarget", { targetId: page.id });
  }

  /** A window of the browser over the page goes only with the page. */
  async #reopen(page: Page): Promise<Page> {
    page.isBlocked = false;
    const { url } = page.mainFrame;
    const isEmpty = url === "" || url === "about:blank";
    if (isEmpty && page.openerId && this.pages.has(page.openerId)) {
      await this.closePages([page]);
      return this.page();
    }
    this.notices.add("blocked", `The page ${url.slice(0, 200)} was reopened; take a snapshot.`);
    this.#forget(page, new ToolError("page_closed", "The page was reopened. Take a snapshot."));
    const fresh = await this.newPage();
    this.connection.root.tell("Target.closeTarget", { targetId: page.id });
    if (!isEmpty && !url.startsWith("chrome-error:")) {
      await fresh.session.send("Page.navigate", { url }, reopenMsMax);
      await fresh.until(() => fresh.documents > 0 && fresh.hasReached("domcontentloaded"), reopenMsMax);
    }
    return fresh;
  }

  #attached({ sessionId, targetInfo }: EventParams<"Target.attachedToTarget">): void {
    if (!this.#owns(({ options }) => options.contextId === targetInfo.browserContextId)) return;
    const session = this.connection.session(sessionId);
    if (targetInfo.type !== "page") {
      this.#watch(session, { id: targetInfo.targetId, documents: 0 });
      session.tell("Runtime.runIfWaitingForDebugger");
      return;
    }
    if (this.pages.size >= pagesMax) {
      this.notices.add("popup", `A window was closed at once, because ${pagesMax} pages are open.`);
      this.connection.root.tell("Target.closeTarget", { targetId: targetInfo.targetId });
      return;
    }
    const isFirst = this.pages.size === 0;
    const page = new Page({
      targetId: targetInfo.targetId,
      session,
      openerId: targetInfo.openerId ?? null,
      notices: this.notices,
      dialogPolicy: this.options.dialogPolicy,
      emulation: this.emulation,
      numbering: this.#numbering,
      secrets: this.options.secrets,
      isOpenAlready: this.options.isAttached,
      changesCharsMax: this.options.changesCharsMax,
      isGranted: (permission) => this.granted.includes(permission as PermissionName),
      sessionOf: (id) => this.connection.session(id),
      onSession: (each, _kind, owner) => this.#watch(each, owner),
    });
    page.onCrash = () => {
      if (!this.#recovery) this.#recoverBy(this.#replace(page));
    };
    page.onClose = () => {
      if (page.openerId)
        this.notices.add("closed", "The popup was closed; the page that opened it is active again.");
      void this.closePages([page]).catch(() => {});
    };
    this.pages.set(page.id, page);
    if (!isFirst && (targetInfo.openerId || this.#creating === 0)) {
      // Without an opener id (noopener) it is still the active page that asked for it.
      const opener = this.pages.get(targetInfo.openerId ?? this.#activeId ?? "");
      const url = targetInfo.url || opener?.lastPopup.url || "about:blank";
      this.notices.add("popup", `A new page was opened and is now the active one: ${url.slice(0, 200)}`);
      this.#activeId = page.id;
      opener?.popupArrived(page);
    } else if (isFirst) this.#activeId = page.id;
    for (const arrival of this.#arrivals) arrival();
    this.#arrivals.clear();
  }

  #watch(session: CdpSession, owner: { id: string; documents: number }): void {
    this.console.attach(session, owner);
    this.network.attach(session, owner);
    this.gate.attach(session);
  }

  #detached(sessionId: string): void {
    const page = [...this.pages.values()].find((each) => each.session.id === sessionId);
    const error = new ToolError(
      "page_closed",
      "The page was closed. Its opener or the last open page is active now.",
    );
    if (!page) {
      this.connection.session(sessionId).end(error);
      return;
    }
    if (page.openerId)
      this.notices.add("closed", "The popup was closed; the page that opened it is active again.");
    this.#forget(page, error);
  }

  #forget(page: Page, error: ToolError): void {
    this.pages.delete(page.id);
    page.close(error);
    if (this.#activeId !== page.id) return;
    const next =
      page.openerId && this.pages.has(page.openerId) ? page.openerId : [...this.pages.keys()].pop();
    this.#activeId = next ?? "none";
  }

  #downloads = new Map<string, string>();

  #downloadBegins(event: EventParams<"Browser.downloadWillBegin">): void {
    const { frameId, guid, suggestedFilename, url } = event;
    if (!this.#owns(({ pages }) => pages.values().some(({ frames }) => frames.has(frameId)))) return;
    const downloadsMax = 200;
    this.downloadsBegun++;
    if (this.#downloads.size >= downloadsMax) this.#downloads.clear();
    this.#downloads.set(guid, suggestedFilename);
    this.notices.add("download", `Download of ${suggestedFilename} began (${url.slice(0, 200)}).`);
  }

  #downloadProgresses({ guid, state, receivedBytes }: EventParams<"Browser.downloadProgress">): void {
    const name = this.#downloads.get(guid);
    if (!name || state === "inProgress") return;
    this.#downloads.delete(guid);
    if (state !== "completed") {
      this.notices.add("download", `The download of ${name} was canceled.`);
      return;
    }
    const { downloadsDir, isAttached, contextId } = this.options;
    const where =
      isAttached && contextId === null
        ? "the browser's own downloads"
        : renameDownload(downloadsDir, guid, name);
    this.notices.add("download", `${name} was downloaded (${receivedBytes} bytes) to ${where}.`);
  }
}

/** Under its own name, or that with a number where there is one already; where that fails, it stays as it is. */
function renameDownload(dir: string, guid: string, name: string): string {
  const { name: stem, ext } = parse(basename(name.replaceAll("\\", "/")));
  const from = join(dir, guid);
  for (let number = 0; number < 1_000; number++) {
    const to = join(dir, `${stem}${number > 0 ? ` (${number})` : ""}${ext}`);
    try {
      // A link fails where the name is taken, a rename would not.
      linkSync(from, to);
      unlinkSync(from);
      return to;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") return from;
    }
  }
  return from;
}
