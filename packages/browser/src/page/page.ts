/** One page (tab or popup): its frames and sessions, its dialogs, and where its main document is in loading. */
import type { CdpSession, EventParams, Result } from "../cdp/connection.ts";
import { ToolError } from "../errors.ts";
import type { Secrets } from "../policy/secrets.ts";
import { guardApplications } from "./applications.ts";
import type { Emulation, PermissionName } from "./emulation.ts";
import { Frame, type RefCount, worldName } from "./frame.ts";
import { firstSource, firstSourceOfPage, pageSecret } from "./inpage/agent.ts";
import type { PageWish } from "./inpage/page-world.ts";
import { Loading, type LoadStage } from "./loading.ts";
import type { NoticeKind, Notices } from "./notices.ts";
import { Pointer } from "./pointer.ts";
import { OpenRequests } from "./requests.ts";
import { autoAttach } from "./targets.ts";

export type DialogPolicy = "accept" | "dismiss";

export interface PageOptions {
  targetId: string;
  session: CdpSession;
  openerId: string | null;
  notices: Notices;
  dialogPolicy: DialogPolicy;
  emulation: Emulation;
  /** Called for every session of the page: its own, its out-of-process frames', its workers'. */
  onSession: (session: CdpSession, kind: "page" | "iframe" | "worker", page: Page) => void;
  sessionOf: (sessionId: string) => CdpSession;
  numbering: Numbering;
  secrets: Secrets;
  /** Its document may be there already, with frames that nobody announces any more. */
  isOpenAlready: boolean;
  isGranted: (permission: PermissionName) => boolean;
  /** How much an action tells of what changed on the page. */
  changesCharsMax: number;
}

/** Counts over all pages of a browser, so that a ref of one page is never taken for an element of another. */
export interface Numbering {
  mainRefs: RefCount;
  framesNamed: number;
}

/** A page that wrote to the console this recently is busy, and not stuck. */
const writingMsMax = 500;
/** A document that refreshes after this many seconds or more is there to be seen; sooner, it only leads to the next. */
const refreshDelaySMin = 1;

interface LastPopup {
  url: string;
  /** It was asked for by a name, under which one may be open already. */
  isNamed: boolean;
  page: Page | null;
}

export interface FileChooser {
  session: CdpSession;
  backendNodeId: number;
  takesSeveral: boolean;
}

export class Page {
  readonly id: string;
  readonly session: CdpSession;
  readonly openerId: string | null;
  readonly frames = new Map<string, Frame>();
  readonly mainFrame: Frame;
  /** The answer to the dialogs of the action that runs, before the standing policy applies. */
  dialogAnswer: { accept: boolean; promptText?: string } | null = null;
  /** Resolves once the page may be sent somewhere. */
  ready: Promise<void> = Promise.resolve();
  crashed = false;
  /** The browser shows a window of its own over the page, which therefore gets no input any more. */
  isBlocked = false;
  closed = false;
  /** Counts main-frame navigations that have begun; compared before and after an action. */
  navigationsBegun = 0;
  /** Counts requests for main documents; one that has begun is the server's turn to answer. */
  documentRequests = 0;
  /** Counts main documents; a change means that refs of the old one are gone. */
  documents = 0;
  /** Counts the steps of all frames, those within a document too. */
  moves = 0;
  /** Which loading brought the document that is there now. */
  documentLoaderId = "";
  status: number | null = null;
  /** Counts the windows that the page has asked for, and the pages that came of it. */
  popupsAsked = 0;
  popupsArrived = 0;
  lastPopup: LastPopup = { url: "", isNamed: false, page: null };
  readonly pointer: Pointer;
  readonly requests = new OpenRequests(() => this.#wake());
  readonly changesCharsMax: number;
  readonly secrets: Secrets;
  /** A file chooser that the page has opened and that nobody has given files to yet. */
  fileChooser: FileChooser | null = null;
  /** The chooser that is about to open is answered at once. */
  isChooserExpected = false;
  readonly #loading = new Loading();
  #isNavigating = false;
  /** The document is about to lead to the next one, by a refresh without a delay. */
  #isSentOn = false;
  #waiters = new Set<() => void>();
  #lastWroteMs = Number.NEGATIVE_INFINITY;
  readonly #options: PageOptions;

  constructor(options: PageOptions) {
    this.#options = options;
    this.id = options.targetId;
    this.session = options.session;
    this.openerId = options.openerId;
    this.changesCharsMax = options.changesCharsMax;
    this.secrets = options.secrets;
    this.pointer = new Pointer(options.session);
    // The main frame of a page carries the id of its target.
    this.mainFrame = new Frame({
      id: options.targetId,
      parentId: null,
      session: options.session,
      refPrefix: "",
      refs: options.numbering.mainRefs,
    });
    this.frames.set(this.mainFrame.id, this.mainFrame);
    this.#attachPageSession();
  }

  #attachPageSession(): void {
    const { session } = this;
    this.#prepare(session, "page");
    session.on("Page.lifecycleEvent", (event) => this.#lifecycle(event));
    session.on("Page.javascriptDialogOpening", (dialog) => this.#answerDialog(dialog));
    session.on("Page.frameRequestedNavigation", ({ frameId, disposition }) => {
      if (frameId === this.mainFrame.id && disposition === "currentTab") this.#navigationBegins();
    });
    session.on("Page.frameScheduledNavigation", ({ frameId, delay }) => {
      if (frameId === this.mainFrame.id && delay < refreshDelaySMin) this.#isSentOn = true;
    });
    session.on("Page.frameClearedScheduledNavigation", ({ frameId }) => {
      if (frameId !== this.mainFrame.id) return;
      this.#isSentOn = false;
      this.#wake();
    });
    session.on("Page.frameStartedNavigating", ({ frameId, navigationType }) => {
      if (frameId === this.mainFrame.id && !/sameDocument/i.test(navigationType)) this.#navigationBegins();
    });
    session.on("Page.frameStoppedLoading", ({ frameId }) => {
      if (frameId !== this.mainFrame.id) return;
      this.#isNavigating = false;
      this.#wake();
    });
    session.on("Network.requestWillBeSent", ({ frameId, type }) => {
      if (type === "Document" && frameId === this.mainFrame.id) this.documentRequests++;
    });
    session.on("Network.responseReceived", ({ frameId, type, response }) => {
      if (type === "Document" && frameId === this.mainFrame.id) this.status = response.status;
    });
    session.on("Page.windowOpen", ({ url, windowName }) => {
      this.popupsAsked++;
      this.lastPopup = { url, isNamed: !/^(_blank)?$/.test(windowName), page: null };
    });
    session.on("Inspector.targetCrashed", () => this.#crash());
    session.tell("Page.setLifecycleEventsEnabled", { enabled: true });
    const framesRead = this.#options.isOpenAlready ? this.#readFrames(session) : null;
    // A navigation that begins before this is answered can crash the page (seen in Chromium 156), hence `ready`.
    const focused = session.send("Emulation.setFocusEmulationEnabled", { enabled: true });
    this.ready = Promise.allSettled([focused, framesRead]).then(() => {});
    this.emulate(this.#options.emulation, false).catch(() => {});
    // Without this the question for a passkey is a window of the browser, which nobody can answer.
    session.tell("WebAuthn.enable", { enableUI: false });
    session.tell("Runtime.runIfWaitingForDebugger");
  }

  /** How many pixels of the device one pixel of the page has. */
  pixelRatio = 1;

  emulate(emulation: Emulation, all: boolean, timeoutMs?: number): Promise<void> {
    this.pixelRatio = emulation.viewport ? emulation.device.deviceScaleFactor : 1;
    this.pointer.isTouch = emulation.device.touch;
    return emulation.apply(this.session, all, timeoutMs);
  }

  /** Everything that a session needs before its target may run. */
  #prepare(session: CdpSession, kind: "page" | "iframe" | "worker"): void {
    // Before the bindings: those of a popup's first document would not be there otherwise.
    session.tell("Runtime.enable");
    session.on("Target.attachedToTarget", (event) => this.#childAttached(event));
    session.on("Target.detachedFromTarget", ({ sessionId }) => {
      this.#options.sessionOf(sessionId).end(new ToolError("page_closed", "The frame or worker was closed."));
    });
    if (kind !== "worker") {
      this.#followFrames(session);
      session.tell("Page.enable");
      session.tell("Page.addScriptToEvaluateOnNewDocument", { source: firstSource, worldName });
      session.on("Runtime.bindingCalled", ({ name, payload }) => {
        if (name === pageSecret) this.#wished(payload as PageWish);
      });
      session.tell("Runtime.addBinding", { name: pageSecret });
      session.tell("Page.addScriptToEvaluateOnNewDocument", { source: firstSourceOfPage });
      session.on("Page.fileChooserOpened", (chooser) => this.#chooserOpened(session, chooser));
      session.tell("Page.setInterceptFileChooserDialog", { enabled: true });
      session.on("Log.entryAdded", ({ entry }) => {
        const blocked = /^Blocked opening '(.*?)' in a new window/.exec(entry.text);
        if (blocked)
          this.report("popup", `A popup was blocked, because its frame may open none: ${blocked[1]}`);
      });
      guardApplications(session, {
        onPrevented: (url) => this.#reportApplication(url),
        onAsked: (url) => {
          this.isBlocked = true;
          this.#reportApplication(url);
        },
      });
    }
    session.on("Runtime.consoleAPICalled", () => {
      this.#lastWroteMs = performance.now();
    });
    this.requests.attach(session);
    session.tell("Target.setAutoAttach", autoAttach);
    this.#options.onSession(session, kind, this);
  }

  #followFrames(session: CdpSession): void {
    session.on("Page.frameAttached", ({ frameId, parentFrameId }) => {
      const known = this.frames.get(frameId);
      if (known) known.session = session;
      else this.#addFrame(frameId, parentFrameId, session);
    });
    session.on("Page.frameDetached", ({ frameId, reason }) => {
      // A frame that moves to another process keeps its place; its new session announces itself.
      if (reason === "remove") this.#dropFrame(frameId);
    });
    session.on("Page.frameNavigated", ({ frame }) => {
      const known = this.frames.get(frame.id) ?? this.#addFrame(frame.id, frame.parentId ?? null, session);
      // Frames of the document before are not always reported as gone, least those of other processes.
      this.#dropFramesBelow(frame.id);
      this.moves++;
      known.session = session;
      known.url = frame.url + (frame.urlFragment ?? "");
      known.documentChanged();
      if (known === this.mainFrame) {
        this.documents++;
        this.documentLoaderId = frame.loaderId;
        this.fileChooser = null;
        this.requests.clear();
      }
      this.#wake();
    });
    session.on("Page.navigatedWithinDocument", ({ frameId, url }) => {
      const frame = this.frames.get(frameId);
      if (frame) frame.url = url;
      this.moves++;
      this.#wake();
    });
    session.on("Runtime.executionContextCreated", ({ context }) => {
      const aux = context.auxData as { frameId?: string; isDefault?: boolean } | undefined;
      const frame = aux?.isDefault ? this.frames.get(aux.frameId ?? "") : undefined;
      if (frame) frame.mainContextId = context.id;
    });
  }

  async #readFrames(session: CdpSession): Promise<void> {
    type Tree = Result<"Page.getFrameTree">["frameTree"];
    const add = ({ frame, childFrames = [] }: Tree) => {
      const known = this.frames.get(frame.id) ?? this.#addFrame(frame.id, frame.parentId ?? null, session);
      known.url ||= frame.url + (frame.urlFragment ?? "");
      for (const child of childFrames) add(child);
    };
    add((await session.send("Page.getFrameTree")).frameTree);
  }

  #dropFrame(frameId: string): void {
    this.frames.delete(frameId);
    this.#dropFramesBelow(frameId);
  }

  #dropFramesBelow(frameId: string): void {
    for (const frame of [...this.frames.values()]) if (frame.parentId === frameId) this.#dropFrame(frame.id);
  }

  #childAttached({ sessionId, targetInfo }: EventParams<"Target.attachedToTarget">): void {
    const session = this.#options.sessionOf(sessionId);
    if (targetInfo.type === "iframe") {
      const known = this.frames.get(targetInfo.targetId);
      const parentId = known?.parentId ?? targetInfo.parentFrameId ?? this.mainFrame.id;
      const frame = known ?? this.#addFrame(targetInfo.targetId, parentId, session);
      frame.session = session;
      frame.documentChanged();
      this.#prepare(session, "iframe");
      if (this.#options.isOpenAlready) void this.#readFrames(session).catch(() => {});
    } else if (/worker/.test(targetInfo.type)) {
      this.#prepare(session, "worker");
    }
    session.tell("Runtime.runIfWaitingForDebugger");
  }

  #answerDialog({ type, message, defaultPrompt }: EventParams<"Page.javascriptDialogOpening">): void {
    const once = this.dialogAnswer;
    // Leaving a page is what was asked for, so beforeunload never holds it back.
    const accept = type === "beforeunload" || (once?.accept ?? this.#options.dialogPolicy === "accept");
    const promptText = type === "prompt" ? (once?.promptText ?? defaultPrompt ?? "") : undefined;
    this.session.tell("Page.handleJavaScriptDialog", { accept, promptText });
    const what = message ? `${type} dialog ${JSON.stringify(message.slice(0, 300))}` : `${type} dialog`;
    const how = accept
      ? `accepted${promptText ? ` with ${JSON.stringify(promptText.slice(0, 300))}` : ""}`
      : "dismissed";
    this.#options.notices.add("dialog", `${what} was ${how}`);
  }

  /** What the page asked the browser for, with nobody there to give it. */
  #wished(wish: PageWish): void {
    if (wish === "print") this.report("print", "The page asked to be printed; make a PDF of it instead.");
    else if (wish === "close") this.onClose();
    else if (!this.#options.isGranted(wish))
      this.report(
        "permission",
        `The page asked for ${wish} and was refused. To allow it, grant the permission "${wish}" with resize.`,
      );
  }

  #chooserOpened(session: CdpSession, { backendNodeId, mode }: EventParams<"Page.fileChooserOpened">): void {
    const takesSeveral = mode === "selectMultiple";
    if (backendNodeId === undefined) {
      this.report(
        "file_chooser",
        "The page asked for a file in a way that cannot be answered; it was told that nobody chose one.",
      );
      return;
    }
    this.fileChooser = { session, backendNodeId, takesSeveral };
    this.#wake();
    if (this.isChooserExpected) return;
    const what = takesSeveral ? "one or more files" : "a file";
    this.report(
      "file_chooser",
      `The page asks for ${what}. Give the paths as files of the next type, without a target.`,
    );
  }

  report(kind: NoticeKind, text: string): void {
    this.#options.notices.add(kind, text);
  }

  #reportApplication(url: string): void {
    this.#options.notices.add(
      "blocked",
      `Another application was asked to open ${url.slice(0, 200)}; there is none here.`,
    );
  }

  #crash(): void {
    this.crashed = true;
    this.#options.notices.add("crash", `The page ${this.mainFrame.url} crashed.`);
    const error = new ToolError(
      "page_crashed",
      "The page crashed and was replaced by a blank one. Navigate again to go on.",
    );
    this.#endSessions(error);
    this.onCrash();
  }

  /** Set by the browser session, which opens the replacement. */
  onCrash: () => void = () => {};
  /** Set by the browser session, which closes it. */
  onClose: () => void = () => {};

  close(error: ToolError): void {
    this.closed = true;
    this.#endSessions(error);
  }

  #endSessions(error: ToolError): void {
    for (const frame of this.frames.values()) frame.session.end(error);
    this.session.end(error);
    this.#wake();
  }

  #addFrame(id: string, parentId: string | null, session: CdpSession): Frame {
    const refPrefix = `f${++this.#options.numbering.framesNamed}`;
    const frame = new Frame({ id, parentId, session, refPrefix, refs: { last: 0 } });
    this.frames.set(id, frame);
    return frame;
  }

  /** The first time it may only be busy; the second time the script that keeps it is stopped. */
  frameSaidNothing(frame: Frame): void {
    const { notices } = this.#options;
    if (!frame.isSilent) {
      notices.add("hang", `The frame ${frame.url} did not respond and was passed over.`);
    } else {
      frame.session.tell("Runtime.terminateExecution");
      notices.add("hang", `The frame ${frame.url} did not respond; its running script was stopped.`);
    }
    frame.isSilent = true;
  }

  popupArrived(popup: Page): void {
    this.popupsArrived++;
    this.lastPopup.page = popup;
    this.#wake();
  }

  #navigationBegins(): void {
    this.navigationsBegun++;
    this.status = null;
    this.#isNavigating = true;
    this.#isSentOn = false;
    this.#wake();
  }

  #lifecycle({ frameId, loaderId, name }: EventParams<"Page.lifecycleEvent">): void {
    if (frameId !== this.mainFrame.id) return;
    const reached = this.#loading.follow(loaderId, name);
    if (!reached) return;
    if (reached !== "commit") this.#isNavigating = false;
    this.#wake();
  }

  /** Whether it writes to the console now, because of what was done after `sinceMs` (on the clock of performance). */
  isWriting(sinceMs: number): boolean {
    return this.#lastWroteMs > sinceMs && performance.now() - this.#lastWroteMs < writingMsMax;
  }

  get isNavigating(): boolean {
    return this.#isNavigating || this.#isSentOn;
  }

  /** Whether the document is that far; with a loader: the document that it brought, or one that it redirected to. */
  hasReached(stage: LoadStage, loaderId?: string): boolean {
    return this.#loading.hasReached(stage, loaderId);
  }

  #wake(): void {
    for (const waiter of [...this.#waiters]) waiter();
  }

  /** Resolves with true once `condition` holds, with false after `timeoutMs`; rejects when the page goes away. */
  until(condition: () => boolean, timeoutMs: number): Promise<boolean> {
    if (condition()) return Promise.resolve(true);
    return new Promise((resolve, reject) => {
      const finish = (settle: () => void) => {
        clearTimeout(timer);
        this.#waiters.delete(check);
        settle();
      };
      const check = () => {
        if (this.session.ended) finish(() => reject(this.session.ended));
        else if (condition()) finish(() => resolve(true));
      };
      const timer = setTimeout(() => finish(() => resolve(false)), Math.max(0, timeoutMs));
      this.#waiters.add(check);
      check();
    });
  }
}
