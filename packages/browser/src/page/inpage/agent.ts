/** The object that the tool keeps in each document: everything in this folder, put together. */
import { createAct, type Outcome, type Readiness } from "./act.ts";
import { createAffordances } from "./affordances.ts";
import { createCounters } from "./counters.ts";
import { createCovers } from "./covers.ts";
import { createDescriber } from "./describe.ts";
import { createDistiller } from "./distill.ts";
import { createDom } from "./dom.ts";
import { createGenerated } from "./generated.ts";
import { createHosts } from "./hosts.ts";
import { createLocate } from "./locate.ts";
import { createNames } from "./names.ts";
import { createRender, type Rendered } from "./render.ts";
import { createRoleTables } from "./role-tables.ts";
import { createRoles } from "./roles.ts";
import { createSilent } from "./silent.ts";
import { createStates } from "./states.ts";
import { createTree } from "./tree.ts";
import { createYaml } from "./yaml.ts";

export interface SnapshotRequest {
  target: string | null;
  offset: number;
  charsMax: number;
  depthMax: number;
  boxes: boolean;
  indentChars: number;
  /** New refs count on from here: what was given out elsewhere under the same prefix is not given out again. */
  refsAfter: number;
}

export interface SnapshotAnswer extends Rendered {
  found: boolean;
  /** Last number given out as a ref. */
  lastRef: number;
  /** Elements met that may hold a closed shadow root and have not been asked about. */
  hosts: number;
  /** Asking about all elements at once is cheaper here than one by one. */
  isSmall: boolean;
  /** Elements left out that have not been asked about and may be there to be clicked. */
  silent: number;
  /** The document is the frame around the viewer of a PDF. */
  isPdf: boolean;
  url: string;
  title: string;
}

export interface Found {
  found: boolean;
  matches: number;
  problem?: string;
  isVisible?: boolean;
  readiness?: Readiness;
}

export interface DomAnswer {
  found: boolean;
  matches: number;
  html: string;
  total: number;
}

export interface PageState extends Outcome {
  url: string;
  title: string;
}

/** What the tool calls; kept apart from the parts so that both sides share one signature. */
export interface Agent {
  snapshot(request: SnapshotRequest): SnapshotAnswer;
  find(target: string): Found;
  click(target: string, alignment: ScrollLogicalPosition, checkMotion: boolean): Found;
  type(target: string, text: string): Found;
  caretToEnd(target: string): void;
  /** True when it is visible, absent and so on, as wanted by wait-for-selector. */
  isInState(
    target: string,
    state: "visible" | "hidden" | "attached" | "detached",
  ): Found & { reached: boolean };
  settled(target: string, timeoutMs: number): Promise<boolean>;
  changed(timeoutMs: number): Promise<void>;
  state(): PageState;
  /** The same, once tasks have run that the input just now put in line, such as the sending of a form. */
  stateAfter(): Promise<PageState>;
  html(target: string | null, offset: number, charsMax: number): DomAnswer;
  rect(target: string): { x: number; y: number; width: number; height: number } | null;
  isFrameHit(frame: Element, x: number, y: number): string | null;
  framePlace(frame: Element): { x: number; y: number; scaleX: number; scaleY: number };
  element(target: string): Element | null;
  /** Looks through the whole document for elements that may hold a closed shadow root; says how many. */
  scanHosts(): number;
  /** Hands out those elements, and regards them as asked about. */
  takeHosts(): Element[];
  /** Returns how many roots were new. */
  adoptClosedRoots(...roots: ShadowRoot[]): number;
  /** The elements that were left out of the snapshot and may be there to be clicked. */
  silentElements(): Element[];
  /** Told to which elements scripts listen; returns how many of them had been left out. */
  adoptListening(...elements: Element[]): number;
}

type Parts = {
  createDom: typeof createDom;
  createHosts: typeof createHosts;
  createCounters: typeof createCounters;
  createGenerated: typeof createGenerated;
  createRoleTables: typeof createRoleTables;
  createStates: typeof createStates;
  createRoles: typeof createRoles;
  createNames: typeof createNames;
  createAffordances: typeof createAffordances;
  createCovers: typeof createCovers;
  createSilent: typeof createSilent;
  createDescriber: typeof createDescriber;
  createTree: typeof createTree;
  createDistiller: typeof createDistiller;
  createRender: typeof createRender;
  createYaml: typeof createYaml;
  createLocate: typeof createLocate;
  createAct: typeof createAct;
};

function createAgent(parts: Parts, refPrefix: string): Agent {
  const dom = parts.createDom();
  const generated = parts.createGenerated(dom, parts.createCounters(dom));
  const roles = parts.createRoles(dom, parts.createStates(dom), parts.createRoleTables());
  const names = parts.createNames(dom, roles, generated);
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

  const hosts = parts.createHosts(dom);
  const act = parts.createAct({ dom, roles });
  const affordances = parts.createAffordances(dom, roles);
  const covers = parts.createCovers(dom, act);
  const silent = parts.createSilent(affordances.listening);
  const noticeSilent = silent.notice;
  const describer = parts.createDescriber({ dom, roles, names, affordances, covers, refFor, noticeSilent });
  const tree = parts.createTree({ dom, generated, describer, covers, refFor, noticeHost: hosts.notice });
  const distiller = parts.createDistiller({ isInteractive: affordances.isInteractive, noticeSilent });
  const renderer = parts.createRender(refFor, parts.createYaml());
  const locator = parts.createLocate({ dom, roles, names });

  function locate(target: string): { element: Element | null; matches: number; problem?: string } {
    if (!/^(f\d+)?e\d+$/.test(target)) return locator.locate(target);
    const element = elementsByRef.get(target)?.deref();
    return element?.isConnected ? { element, matches: 1 } : { element: null, matches: 0 };
  }

  const answer = (target: string, act: (element: Element) => Readiness): Found => {
    const { element, matches, problem } = locate(target);
    if (!element) return { found: false, matches, problem };
    return { found: true, matches, readiness: act(element) };
  };

  const state = () => ({ ...act.outcome(), url: location.href, title: document.title });

  return {
    snapshot(request) {
      dom.resetCaches();
      lastRef = Math.max(lastRef, request.refsAfter);
      // A picture in SVG is a document without a body.
      const whole: Element | null = document.body ?? document.documentElement;
      const root = request.target === null ? whole : locate(request.target).element;
      const isPdf = document.contentType === "application/pdf";
      const where = { url: location.href, title: document.title, isPdf };
      if (!root) {
        const nothing = { lines: [], frames: [], truncated: false, chars: 0, hosts: 0, silent: 0 };
        return { ...nothing, ...where, found: request.target === null, lastRef, isSmall: true };
      }
      const shortestLine = 28;
      const top = tree.build(root, {
        offset: request.offset,
        charsMax: request.charsMax * 1.2,
        childrenMax: Math.ceil(request.charsMax / shortestLine),
        isTarget: request.target !== null,
      });
      distiller.distill(top, request.depthMax);
      const rendered = renderer.render(top, request);
      dom.resetCaches();
      return {
        ...rendered,
        ...where,
        found: true,
        lastRef,
        hosts: hosts.count(),
        isSmall: hosts.isSmallPage(),
        silent: silent.count(),
      };
    },
    find: (target) => {
      const { element, matches, problem } = locate(target);
      dom.resetCaches();
      const isVisible = element !== null && dom.boxOf(element).visible;
      return { found: element !== null, matches, problem, isVisible };
    },
    click: (target, alignment, checkMotion) =>
      answer(target, (element) => act.prepareClick(element, alignment, checkMotion)),
    type: (target, text) => answer(target, (element) => act.prepareType(element, text)),
    caretToEnd(target) {
      const { element } = locate(target);
      if (element) act.caretToEnd(element);
    },
    isInState(target, state) {
      const { element, matches, problem } = locate(target);
      dom.resetCaches();
      const isVisible = element !== null && dom.boxOf(element).visible;
      const reached = {
        visible: isVisible,
        hidden: !isVisible,
        attached: element !== null,
        detached: element === null,
      }[state];
      return { found: element !== null, matches, problem, reached };
    },
    async settled(target, timeoutMs) {
      const { element } = locate(target);
      return element ? act.settled(element, timeoutMs) : false;
    },
    changed: act.changed,
    state,
    stateAfter: () => new Promise((resolve) => setTimeout(() => resolve(state()), 0)),
    html(target, offset, charsMax) {
      const { element, matches } =
        target === null ? { element: document.documentElement, matches: 1 } : locate(target);
      if (!element) return { found: false, matches, html: "", total: 0 };
      const html = element.outerHTML;
      return { found: true, matches, html: html.slice(offset, offset + charsMax), total: html.length };
    },
    rect(target) {
      const { element } = locate(target);
      if (!element) return null;
      element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
      const { x, y, width, height } = element.getBoundingClientRect();
      return { x, y, width, height };
    },
    /** Null when a click at this place of the parent document goes into the frame, else what is in the way. */
    isFrameHit(frame, x, y) {
      const hit = act.deepestAt(x, y);
      return hit === frame ? null : hit ? act.describe(hit) : "nothing";
    },
    framePlace(frame) {
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
    element: (target) => locate(target).element,
    scanHosts: hosts.scan,
    takeHosts: hosts.take,
    adoptClosedRoots: hosts.adopt,
    silentElements: silent.list,
    adoptListening: silent.adopt,
  };
}

/** The expression that makes the agent when evaluated in a document. */
export function agentSource(refPrefix: string): string {
  const parts = {
    createDom,
    createHosts,
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
    createRender,
    createYaml,
    createLocate,
    createAct,
  };
  const fields = Object.entries(parts).map(([name, part]) => `${name}:${part.toString()}`);
  return `(${createAgent.toString()})({${fields.join(",")}},${JSON.stringify(refPrefix)})`;
}
