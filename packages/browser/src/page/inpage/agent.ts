/** The object that the tool keeps in each document: everything in this folder, put together. */
import { type ClickRequest, createAct } from "./act.ts";
import { createAffordances } from "./affordances.ts";
import { createBrief } from "./brief.ts";
import { createChanges } from "./changes.ts";
import { createCompare } from "./compare.ts";
import type { After, Found, SnapshotAnswer, SnapshotRequest } from "./contract.ts";
import { createCounters } from "./counters.ts";
import { createCovers } from "./covers.ts";
import { createDescriber } from "./describe.ts";
import { createDistiller } from "./distill.ts";
import { createDom } from "./dom.ts";
import { createFields, type InsertRequest, type TypeRequest } from "./fields.ts";
import { createForms } from "./forms.ts";
import { nextFrame } from "./frames.ts";
import { createGenerated } from "./generated.ts";
import { createHit, type Point } from "./hit.ts";
import { createHosts } from "./hosts.ts";
import { createLocate } from "./locate.ts";
import { createLooks } from "./looks.ts";
import { createMask } from "./mask.ts";
import { createMomentary } from "./momentary.ts";
import { createNames } from "./names.ts";
import { createTimers, followPage } from "./page-world.ts";
import { createPairing } from "./pairing.ts";
import { createPrune } from "./prune.ts";
import { createRender } from "./render.ts";
import { createRoleTables } from "./role-tables.ts";
import { createRoles } from "./roles.ts";
import { safeDocument } from "./safe-document.ts";
import { createSilent } from "./silent.ts";
import { createStates } from "./states.ts";
import { storage } from "./store.ts";
import { createTree } from "./tree.ts";
import { createWatch, listenFirst } from "./watch.ts";
import { createYaml } from "./yaml.ts";

const parts = {
  createDom,
  createHosts,
  createBrief,
  createCounters,
  createGenerated,
  createRoleTables,
  createStates,
  createRoles,
  createNames,
  createAffordances,
  createCovers,
  createSilent,
  createDescriber,
  createTree,
  createDistiller,
  createPrune,
  createRender,
  createYaml,
  createLocate,
  createHit,
  createWatch,
  createAct,
  createFields,
  createForms,
  createMomentary,
  createLooks,
  createPairing,
  createCompare,
  createChanges,
  createTimers,
  createMask,
  nextFrame,
  storage,
  listenFirst,
};

function createAgent(
  made: typeof parts,
  { refPrefix, pageSecret }: { refPrefix: string; pageSecret: string },
  page: Document,
) {
  const dom = made.createDom();
  const brief = made.createBrief(dom);
  const generated = made.createGenerated(dom, made.createCounters(dom));
  const roles = made.createRoles(dom, made.createStates(dom), made.createRoleTables());
  const names = made.createNames(dom, roles, generated);
  const refsByElement = new WeakMap<Element, string>();
  const elementsByRef = new Map<string, WeakRef<Element>>();
  let lastRef = 0;
  const refsMax = 50_000;

  function refFor(element: Element): string {
    let ref = refsByElement.get(element);
    if (!ref) {
      ref = `${refPrefix}e${++lastRef}`;
      refsByElement.set(element, ref);
      elementsByRef.set(ref, new WeakRef(element));
      if (elementsByRef.size > refsMax) forgetGone();
    }
    return ref;
  }

  function forgetGone(): void {
    for (const [ref, held] of elementsByRef) if (!held.deref()?.isConnected) elementsByRef.delete(ref);
  }

  /** What was drawn anew is found under the ref of what it has taken the place of. */
  function passRef(ref: string, from: Element, to: Element): void {
    const own = refsByElement.get(to);
    if (own !== ref && own !== undefined) elementsByRef.delete(own);
    refsByElement.delete(from);
    refsByElement.set(to, ref);
    elementsByRef.set(ref, new WeakRef(to));
  }

  const hosts = made.createHosts(dom);
  const hit = made.createHit({ dom, brief });
  const affordances = made.createAffordances(dom, roles);
  const covers = made.createCovers(dom, hit);
  const silent = made.createSilent(affordances.listening);
  const noticeSilent = silent.notice;
  const describer = made.createDescriber({ dom, roles, names, affordances, covers, refFor, noticeSilent });
  const tree = made.createTree({ dom, generated, describer, covers, refFor, noticeHost: hosts.notice });
  const distiller = made.createDistiller({ isInteractive: affordances.isInteractive, noticeSilent });
  const prune = made.createPrune(dom);
  const renderer = made.createRender(refFor, made.createYaml());
  const locator = made.createLocate({ dom, roles, names, hit });
  const frame = made.nextFrame;
  const watch = made.createWatch({ dom, hit, brief, frame, listenFirst: made.listenFirst });
  const act = made.createAct({ dom, roles, hit, watch, brief, frame, page });
  const fields = made.createFields({ dom, roles, hit, act, brief, watch });
  const forms = made.createForms({ roles, names, refFor });
  const momentary = made.createMomentary({ dom, page });
  const looks = made.createLooks({ tree, distiller });
  const pairing = made.createPairing(passRef);
  const comparison = made.createCompare({ dom, brief, looks, pairing, renderer, momentary });
  const changeLog = made.createChanges({ dom, looks, comparison, momentary });
  const timers = made.createTimers(pageSecret);
  const reactionMsMax = 500;
  const terseWidening = 6;
  /** A page that changes all the time is not compared more often than this. */
  const compareMsEach = 40;
  /** What the page does within this time of an action's beginning is taken as done by its listeners. */
  const inputMsMax = 100;
  /** What the last action is on, and when it began. */
  let acted: { element: Element | null; sinceMs: number } = { element: null, sinceMs: 0 };

  function begin(element: Element | null): void {
    changeLog.prepare();
    timers.begin();
    acted = { element, sinceMs: performance.now() };
  }

  /** Whether the page is not done with the last action: it has set a timer since, or begun to move. */
  function isPending(untilMs = performance.now()): boolean {
    const span = { sinceMs: acted.sinceMs, untilMs };
    return timers.arePending(span, reactionMsMax) || timers.isMoving(span, reactionMsMax);
  }

  function locate(target: string): { element: Element | null; matches: number; problem?: string } {
    if (!/^(f\d+)?e\d+$/.test(target)) return locator.locate(target);
    const element = elementsByRef.get(target)?.deref();
    return element?.isConnected ? { element, matches: 1 } : { element: null, matches: 0 };
  }

  const located = (target: string | null) => (target === null ? fields.focused() : locate(target).element);

  const answer = (
    target: string,
    prepare: (element: Element) => Pick<Found, "readiness" | "field">,
  ): Found => {
    const { element, matches, problem } = locate(target);
    if (!element) return { found: false, matches, problem };
    return { found: true, matches, ...prepare(element), lastRef };
  };

  const urlCharsMax = 10_000;
  const titleCharsMax = 1_000;
  const state = () => ({
    url: location.href.slice(0, urlCharsMax),
    title: document.title.slice(0, titleCharsMax),
  });

  return {
    /** New refs count on from here: what was given out elsewhere under the same prefix is not given out again. */
    countFrom(count: number): void {
      lastRef = Math.max(lastRef, count);
    },
    snapshot(request: SnapshotRequest): SnapshotAnswer {
      dom.resetCaches();
      // A picture in SVG is a document without a body.
      const whole: Element | null = document.body ?? document.documentElement;
      const root = request.target === null ? whole : locate(request.target).element;
      const where = { ...state(), isPdf: document.contentType === "application/pdf" };
      if (!root) {
        const nothing = { lines: [], frames: [], truncated: false, chars: 0, hosts: 0, silent: 0 };
        return { ...nothing, ...where, found: request.target === null, lastRef, isSmall: true };
      }
      const shortestLine = 28;
      const search = request.find === null ? null : prune.waysTo(root, request.find);
      const gathered = (shownCharsMax: number) => {
        const top = tree.build(root, {
          offset: request.offset,
          charsMax: shownCharsMax * 1.2,
          childrenMax: Math.ceil(shownCharsMax / shortestLine),
          isTarget: request.target !== null,
          looks: request.boxes,
          ways: search?.ways ?? null,
        });
        distiller.distill(top, request.depthMax);
        return top;
      };
      // To find something, or to compare with it later, more is looked at than is shown.
      const widening = request.find !== null ? prune.widening : request.terse ? terseWidening : 1;
      const wideCharsMax = request.charsMax * widening;
      const top = gathered(wideCharsMax);
      if (request.find !== null) prune.keepMatching(top, request.find);
      const isPart = request.target !== null || request.find !== null || request.boxes;
      if (!isPart && request.offset + request.depthMax === 0) changeLog.remember(top, wideCharsMax * 1.2);
      const wide = renderer.render(top, {
        ...request,
        charsMax: request.terse ? wideCharsMax : request.charsMax,
      });
      // What is too large is gathered again, so that each part of the page has its share.
      const rendered =
        wide.chars > request.charsMax ? renderer.render(gathered(request.charsMax), request) : wide;
      if (search && search.more > 0) {
        rendered.lines.push(`- /more: "about ${search.more} more hits, find a longer text or in a target"`);
        rendered.truncated = true;
      }
      dom.resetCaches();
      return {
        ...rendered,
        ...where,
        found: true,
        lastRef,
        hosts: hosts.count(),
        silent: silent.count(),
        isSmall: hosts.isSmallPage(),
      };
    },
    find(target: string): Found {
      const { element, matches, problem } = locate(target);
      dom.resetCaches();
      const isVisible = element !== null && dom.boxOf(element).visible;
      return { found: element !== null, matches, problem, isVisible };
    },
    click(target: string, request: ClickRequest): Found {
      begin(locate(target).element);
      return answer(target, (element) => ({ readiness: act.prepareClick(element, request) }));
    },
    /** Before a click at a position on the page, whatever element is there. */
    expectAnywhere(clicks: number, timeoutMs: number): void {
      begin(null);
      watch.arm({ element: null, until: "click", clicks, timeoutMs });
    },
    verdict: watch.verdict,
    /** The drop position: the element's middle, or a place in it, even if something covers it. */
    placeOf(target: string, position: Point | null): Point | null {
      const { element } = locate(target);
      if (!element) return null;
      // In the window it may still be scrolled away inside a list; what is in view already stays where it is.
      hit.scrollTo(element, "nearest");
      const { x, y, width, height } = hit.boxed(element).getBoundingClientRect();
      return position ? { x: x + position.x, y: y + position.y } : { x: x + width / 2, y: y + height / 2 };
    },
    size: () => ({ width: innerWidth, height: innerHeight }),
    focusOn(target: string): void {
      const { element } = locate(target);
      if (element) (fields.fieldOf(element) ?? (element as HTMLElement)).focus?.();
    },
    isHovered(target: string): boolean {
      const { element } = locate(target);
      return element !== null && act.isHovered(element);
    },
    hasDragBegun: watch.hasDragBegun,
    frame,
    type(target: string, request: TypeRequest): Found {
      begin(locate(target).element);
      // What came of the input before this one is not of interest any more.
      forms.take();
      return answer(target, (element) => {
        const field = fields.kindOf(element);
        return { field, readiness: fields.prepareType(element, request) };
      });
    },
    /** The text of a plain field that `type` found ready; what is left of it has to be sent as input. */
    insert(target: string, text: string, request: InsertRequest): string {
      const element = located(target);
      return element === null ? text : fields.insert(element, text, request);
    },
    paste: fields.paste,
    /** What has the focus: a field, a document inside of this one, something else, or nothing. */
    focus() {
      const element = document.hasFocus() ? fields.focused() : null;
      begin(element);
      forms.take();
      const field = fields.kindOf(element);
      if (!element) return { kind: "none" as const, field };
      if (/^(IFRAME|FRAME|OBJECT|EMBED)$/.test(dom.tagOf(element))) return { kind: "frame" as const, field };
      return { kind: fields.fieldOf(element) ? ("field" as const) : ("other" as const), field };
    },
    /** Null: the element that has the focus; so below. */
    boxesValue(target: string | null, count: number): string {
      const element = located(target);
      return element ? fields.boxesValue(element, count) : "";
    },
    leaveBox(target: string | null, index: number): void {
      const element = located(target);
      if (element) fields.leaveBox(element, index);
    },
    caretToEnd(target: string): void {
      const { element } = locate(target);
      if (element) fields.caretToEnd(element);
    },
    /** The file field that it is or that belongs to it. */
    fileField(target: string): Element | null {
      const { element } = locate(target);
      const isFile = (one: Element | null) => one instanceof HTMLInputElement && one.type === "file";
      if (!element || isFile(element)) return element;
      const labelled = element instanceof HTMLLabelElement ? element.control : null;
      if (isFile(labelled)) return labelled;
      return (dom.shadowOf(element) ?? element).querySelector("input[type=file]");
    },
    isInState(
      target: string,
      wanted: "visible" | "hidden" | "attached" | "detached",
    ): Found & { reached: boolean } {
      const { element, matches, problem } = locate(target);
      dom.resetCaches();
      const isVisible = element !== null && dom.boxOf(element).visible;
      const reached = {
        visible: isVisible,
        hidden: !isVisible,
        attached: element !== null,
        detached: element === null,
      }[wanted];
      return { found: element !== null, matches, problem, reached };
    },
    async settled(target: string, timeoutMs: number): Promise<boolean> {
      const { element } = locate(target);
      return element ? act.settled(element, timeoutMs) : false;
    },
    changed: act.changed,
    quiet: act.quiet,
    state,
    /** Before an action: what the page is compared with afterwards. */
    prepare() {
      begin(fields.focused());
      forms.take();
      return { lastRef };
    },
    /**
     * After an action, once the frame that follows it is drawn. What missed its target is told at once. `field` asks
     * for the value of a field too.
     */
    async after(changesCharsMax: number, field: { target: string | null } | null): Promise<After> {
      const verdict = watch.verdict();
      if (verdict.hit === false) {
        const changes = { lines: [], truncated: false, isPartial: false, isNew: false, momentary: [] };
        const nothing = { changes, isBare: true, isPending: false, value: null };
        return { ...verdict, ...forms.take(), ...state(), ...nothing, lastRef };
      }
      // While the frame is on its way the page is compared already; that holds unless the frame changes something.
      changeLog.anticipate(changesCharsMax);
      await watch.afterInput();
      const seen = changeLog.since(changesCharsMax, false, acted.element);
      const element = field && located(field.target);
      const value = element && fields.heldBy(element);
      return { ...verdict, ...forms.take(), ...state(), ...seen, isPending: isPending(), value, lastRef };
    },
    /** Waits until more changes than what was acted on, or nothing more is to come of the page itself. */
    async reaction(timeoutMs: number): Promise<void> {
      const { sinceMs } = acted;
      const endsAtMs = performance.now() + timeoutMs;
      // A change may be another's; what the action itself has set a timer for is waited for all the same.
      let untilMs: number | undefined;
      while (isPending(untilMs) && performance.now() < endsAtMs && acted.sinceMs === sinceMs) {
        const hasChanged = await momentary.nextChange(Math.min(compareMsEach, endsAtMs - performance.now()));
        if (!hasChanged || untilMs !== undefined) continue;
        await frame();
        if (acted.sinceMs === sinceMs && !changeLog.isBare(acted.element)) untilMs = sinceMs + inputMsMax;
      }
      await frame();
    },
    /** What has changed since the last report; `again`: since the one before that. */
    changes(charsMax: number, again: boolean) {
      const { changes, isBare } = changeLog.since(charsMax, again, acted.element);
      return { ...changes, isBare, isPending: isPending(), ...state(), lastRef };
    },
    html(target: string | null, offset: number, charsMax: number) {
      const { element, matches } =
        target === null ? { element: document.documentElement, matches: 1 } : locate(target);
      if (!element) return { found: false, matches, html: "", total: 0 };
      const html = element.outerHTML;
      return { found: true, matches, html: html.slice(offset, offset + charsMax), total: html.length };
    },
    rect(target: string) {
      const { element } = locate(target);
      if (!element) return null;
      element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
      const { x, y, width, height } = element.getBoundingClientRect();
      return { x, y, width, height };
    },
    storage: made.storage,
    mask: made.createMask(dom),
    /** Null when a click at this place of the parent document goes into the frame, else what is in the way. */
    isFrameHit(frame: Element, x: number, y: number): string | null {
      const found = hit.deepestAt(x, y);
      return found === frame ? null : found ? brief(found) : "nothing";
    },
    framePlace(frame: Element) {
      const box = frame.getBoundingClientRect();
      if (box.top < 0 || box.left < 0 || box.bottom > innerHeight || box.right > innerWidth)
        frame.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
      const { x, y, width, height } = frame.getBoundingClientRect();
      const style = getComputedStyle(frame);
      const edge = (side: string) =>
        Number.parseFloat(style.getPropertyValue(`border-${side}-width`)) +
        Number.parseFloat(style.getPropertyValue(`padding-${side}`));
      // A preview is often the whole page, made smaller by a transform.
      const { offsetWidth, offsetHeight } = frame as HTMLElement;
      const scaleX = offsetWidth > 0 ? width / offsetWidth : 1;
      const scaleY = offsetHeight > 0 ? height / offsetHeight : 1;
      return { x: x + edge("left") * scaleX, y: y + edge("top") * scaleY, scaleX, scaleY };
    },
    element: (target: string): Element | null => locate(target).element,
    scanHosts: hosts.scan,
    takeHosts: hosts.take,
    adoptClosedRoots: hosts.adopt,
    silentElements: silent.list,
    adoptListening: silent.adopt,
  };
}

/** What the tool asks of a document. */
export type Agent = ReturnType<typeof createAgent>;

/** The name by which the tool and the page's own world meet; no page can know it. */
export const pageSecret = crypto.randomUUID();

/**
 * The expression that makes the agent when evaluated in a document; null in a world that was used in the frame's first,
 * empty document, where what replaced it is not of this world's classes.
 */
export function agentSource(refPrefix: string): string {
  const fields = Object.entries(parts).map(([name, part]) => `${name}:${part.toString()}`);
  const names = JSON.stringify({ refPrefix, pageSecret });
  const made = `(${createAgent.toString()})({${fields.join(",")}},${names},page)`;
  // What everything in here calls `document` is the safe one; observers want the real one, which is `page`.
  return `document instanceof Document?((page,document)=>${made})(globalThis.document,(${safeDocument.toString()})(globalThis.document)):null`;
}

/** What runs in every new document before its own script: in the tool's world, and in the page's. */
export const firstSource = `(${listenFirst.toString()})()`;
export const firstSourceOfPage = `(${followPage.toString()})(${JSON.stringify(pageSecret)})`;
