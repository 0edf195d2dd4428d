/** Builds the aria tree of a document or a part of it, within a bound on how many elements are looked at. */
import type { Covers } from "./covers.ts";
import type { AriaNode, Describer } from "./describe.ts";
import type { Dom } from "./dom.ts";
import type { Generated } from "./generated.ts";
import type { Ways } from "./prune.ts";

export interface TreeOptions {
  /** First child of the root to look at. */
  offset: number;
  /** About how many characters of output are worth gathering. */
  charsMax: number;
  childrenMax: number;
  /** The root was asked for, and gets a line in any case. */
  isTarget: boolean;
  /** What tells by its shape or colour alone is shown too. */
  looks: boolean;
  /** Where a text was searched for: nothing else is looked at. */
  ways: Ways | null;
}

export interface TreeTools {
  dom: Dom;
  generated: Generated;
  describer: Describer;
  covers: Covers;
  refFor: (element: Element) => string;
  /** Told of every visible element that is walked over. */
  noticeHost: (element: Element) => void;
}

export function createTree({ dom, generated, describer, covers, refFor, noticeHost }: TreeTools) {
  const depthMax = 250;
  /** What an element costs that leaves no line, so that a walk over many of them ends too. */
  const hiddenCost = 4;
  /** What is in every line beside role and name: dash, quotes, the ref, the colon and the line's end. */
  const lineCost = 18;
  const pointerAndUrlCost = 27;
  /** A child may always use this much, so that list items are not cut in the middle. */
  const shareMin = 400;
  /** Kept back for each child that is still to come. */
  const reserveEach = 150;
  /** A page whose elements need no more than this each is tried as a whole before its space is shared out. */
  const elementCharsMin = 16;

  interface Walk {
    /** How many characters of output may still be gathered below here. */
    left: number;
    visible: boolean;
    inert: boolean;
    depth: number;
    /** How far the lines will be indented; most plain wrappers are left out again and do not count. */
    level: number;
    /** All of it is looked at, and not only the way to something. */
    isWhole: boolean;
  }

  /** About how many characters the node's own line and properties will take. */
  function costOf(node: AriaNode, level: number): number {
    let cost = 2 * level + node.role.length + node.name.length + lineCost;
    if (node.hint) cost += 2 * level + node.hint.length + lineCost;
    if (node.role !== "link") return cost;
    const href = node.element.getAttribute("href")?.length ?? 0;
    cost += 2 * level + pointerAndUrlCost + Math.min(href, shareMin);
    return cost;
  }

  function build(root: Element, options: TreeOptions): AriaNode {
    const isSmall = root.getElementsByTagName("*").length * elementCharsMin <= options.charsMax;
    const whole = isSmall ? walkTree(root, options, false) : null;
    const { top, isComplete } = whole?.isComplete ? whole : walkTree(root, options, true);
    covers.mark(isComplete);
    return top;
  }

  /** With shares no part of the page takes all the space; without, the walk ends where the space does. */
  function walkTree(
    root: Element,
    options: TreeOptions,
    shares: boolean,
  ): { top: AriaNode; isComplete: boolean } {
    describer.begin(options.looks);
    const visited = new Set<Node>();
    const top = describer.empty(root, "fragment");
    let spent = 0;
    let isComplete = true;

    /** Returns about how many characters the node will take. */
    function visit(into: AriaNode, node: Node, walk: Walk): number {
      if (node.nodeType === Node.TEXT_NODE) return visitText(into, node as Text, walk);
      if (!(node instanceof Element) || visited.has(node)) return 0;
      visited.add(node);
      if (!walk.isWhole && !options.ways?.has(node)) return 0;
      const isWhole = walk.isWhole || options.ways?.get(node) === true;
      const tag = dom.tagOf(node);
      if (tag === "STYLE" || tag === "SCRIPT" || tag === "TEMPLATE" || tag === "NOSCRIPT") return 0;
      if (dom.isUnrendered(node)) return hiddenCost;
      const isVisible = !dom.isHiddenForAria(node) || dom.boxOf(node).visible;
      const inert = describer.isInert(node, walk.inert);
      noticeHost(node);
      const isLarge = node.childNodes.length > options.childrenMax;
      const isTarget = options.isTarget && node === root;
      let own = isVisible ? describer.describe(node, { isTarget, isLarge, inert }) : null;
      if (own === null && isLarge) own = wrapper(node);
      if (own) into.children.push({ index: into.at, node: own });
      const cost = own ? costOf(own, walk.level) : hiddenCost;
      spent += cost;
      // What stands inside of a frame, a progress bar or a meter is for browsers that do not know these.
      if (describer.holdsDocument(node) || tag === "PROGRESS" || tag === "METER") return cost;
      const level = own && own.role !== "generic" ? walk.level + 1 : walk.level;
      const { depth } = walk;
      const left = walk.left - cost;
      return cost + descend(own ?? into, node, { left, visible: isVisible, inert, depth, level, isWhole });
    }

    function visitText(into: AriaNode, text: Text, { visible, isWhole }: Walk): number {
      if (!isWhole) return 0;
      const isValue = text.parentNode instanceof HTMLTextAreaElement;
      if (visible && text.data && !isValue && !dom.isTextLeftOut(text))
        into.children.push({ index: into.at, node: generated.shownText(text) });
      const cost = Math.min(text.data.length, shareMin);
      spent += cost;
      return cost;
    }

    /** An element that would pass its many children on to its parent is kept, so that they can be paged through. */
    function wrapper(element: Element): AriaNode {
      return { ...describer.empty(element, "generic"), box: dom.boxOf(element), ref: refFor(element) };
    }

    function descend(into: AriaNode, element: Element, walk: Walk): number {
      const owns = into.element === element && into !== top;
      const push = (text: string) => {
        if (text) into.children.push({ index: into.at, node: text });
      };
      const isBlock = dom.displayOf(element) !== "inline" || element.nodeName === "BR";
      if (isBlock) {
        covers.notice(element);
        push(" ");
      }
      push(generated.cssText(element, "::before"));
      let used = 0;
      let index = -1;
      const children = dom.childrenOf(element);
      const count = (children as ArrayLike<Node> & Iterable<Node>).length;
      const first = element === root ? options.offset : 0;
      // On the way to hits, which are few, all children are passed.
      const last = walk.isWhole ? Math.min(count, first + options.childrenMax) : count;
      for (const child of children) {
        index++;
        if (index < first) continue;
        const left = shares ? walk.left - used : options.charsMax - spent;
        if (index >= last || left <= 0 || walk.depth > depthMax) {
          isComplete = false;
          if (owns) into.unseen = { count: count - index, offset: index };
          else if (into !== top) into.unseen ??= { count: count - index, offset: into.at };
          break;
        }
        if (owns) into.at = index;
        used += visit(into, child, {
          left: shareOf(left, last - index),
          visible: walk.visible,
          inert: walk.inert,
          depth: walk.depth + 1,
          level: walk.level,
          isWhole: walk.isWhole,
        });
      }
      push(generated.cssText(element, "::after"));
      if (isBlock) push(" ");
      if (owns) describer.addProperties(into);
      return used;
    }

    /** Each child may use four times its even share, but never what the ones after it need at least. */
    function shareOf(left: number, remaining: number): number {
      const reserve = Math.min(left * 0.3, (remaining - 1) * reserveEach);
      return Math.max(shareMin, Math.min(Math.ceil(left / remaining) * 4, left - reserve));
    }

    const inert = root.closest("[inert]") !== null;
    const isWhole = options.ways === null;
    visit(top, root, { left: options.charsMax, visible: true, inert, depth: 0, level: 0, isWhole });
    return { top, isComplete };
  }

  return { build };
}

export type Tree = ReturnType<typeof createTree>;
