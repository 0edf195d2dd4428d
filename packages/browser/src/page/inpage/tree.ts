/** Builds the aria tree of a document or a part of it, within a bound on how many elements are looked at. */
import type { Box, Dom } from "./dom.ts";
import type { Names } from "./names.ts";
import type { Roles, States } from "./roles.ts";

export interface AriaChild {
  /** Position of the child of this node's element under which it was found; what `offset` counts. */
  index: number;
  node: AriaNode | string;
}

export interface AriaNode {
  element: Element;
  role: string;
  name: string;
  ref: string | null;
  box: Box;
  active: boolean;
  states: States;
  isAriaHidden: boolean;
  url?: string;
  placeholder?: string;
  children: AriaChild[];
  /** Children that were not looked at: how many, and where to go on. */
  unseen?: { count: number; offset: number };
  nameSources: Set<Element>;
  at: number;
}

export interface TreeOptions {
  /** First child of the root to look at. */
  offset: number;
  /** About how many characters of output are worth gathering. */
  charsMax: number;
  childrenMax: number;
}

export interface TreeTools {
  dom: Dom;
  roles: Roles;
  names: Names;
  refFor: (element: Element) => string;
  /** Told of every visible element that is walked over. */
  noticeHost: (element: Element) => void;
}

export function createTree({ dom, roles, names, refFor, noticeHost }: TreeTools) {
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
  let active: Element | null = null;
  const nodeOf = (child: AriaChild) => (typeof child.node === "string" ? null : child.node);

  function holdsDocument(element: Element): boolean {
    const tag = dom.tagOf(element);
    if (tag === "IFRAME" || tag === "FRAME") return true;
    if (tag === "OBJECT") return (element as HTMLObjectElement).contentWindow !== null;
    // An <embed> does not tell what it holds.
    return (
      tag === "EMBED" &&
      /^(text\/html|application\/xhtml|image\/svg)|^$/.test((element as HTMLEmbedElement).type)
    );
  }

  function describe(element: Element, keepInlineText: boolean): AriaNode | null {
    const isFrame = holdsDocument(element);
    const known = roles.roleOf(element);
    const role = isFrame ? "iframe" : (known ?? "generic");
    if (role === "presentation" || role === "none") return null;
    const box = dom.boxOf(element);
    if (role === "generic" && box.inline && !keepInlineText) {
      // A plain <span>text</span> reads as text of its parent.
      if (element.childNodes.length === 1 && element.firstChild instanceof Text) return null;
    }
    const name = isFrame ? { text: "", sources: new Set<Element>() } : names.nameOf(element, known ?? "");
    const isReachable = box.visible && (isFrame || dom.receivesPointer(element));
    const node: AriaNode = {
      element,
      role,
      name: name.text,
      nameSources: name.sources,
      ref: isReachable ? refFor(element) : null,
      box,
      active: element === active,
      states: isFrame ? {} : roles.statesOf(element, role),
      isAriaHidden: element.getAttribute("aria-hidden")?.toLowerCase() === "true",
      children: [],
      at: 0,
    };
    if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement) {
      if (!/^(checkbox|radio|file)$/.test(element.type))
        node.children.push({ index: 0, node: element.value });
    }
    return node;
  }

  function shorten(url: string): string {
    if (!url.startsWith("data:")) return url;
    const comma = url.indexOf(",");
    return comma === -1 ? url : `${url.slice(0, comma)},…`;
  }

  interface Walk {
    /** How many characters of output may still be gathered below here. */
    left: number;
    visible: boolean;
    depth: number;
    /** How far the lines will be indented; most plain wrappers are left out again and do not count. */
    level: number;
  }

  /** About how many characters the node's own line and properties will take. */
  function costOf(node: AriaNode, level: number): number {
    const line = 2 * level + node.role.length + node.name.length + lineCost;
    if (node.role !== "link") return line;
    const href = node.element.getAttribute("href")?.length ?? 0;
    return line + 2 * level + pointerAndUrlCost + Math.min(href, shareMin);
  }

  function build(root: Element, options: TreeOptions): AriaNode {
    const visited = new Set<Node>();
    const top: AriaNode = {
      element: root,
      role: "fragment",
      name: "",
      nameSources: new Set(),
      ref: null,
      box: { visible: true, inline: false, cursor: "" },
      active: false,
      states: {},
      isAriaHidden: false,
      children: [],
      at: 0,
    };

    /** Returns about how many characters the node will take. */
    function visit(into: AriaNode, node: Node, walk: Walk): number {
      if (node.nodeType === Node.TEXT_NODE) {
        const text = node as Text;
        if (walk.visible && text.data && into.role !== "textbox" && !dom.isTextLeftOut(text))
          into.children.push({ index: into.at, node: text.data });
        return Math.min(text.data.length, shareMin);
      }
      if (!(node instanceof Element) || visited.has(node)) return 0;
      visited.add(node);
      const tag = dom.tagOf(node);
      if (tag === "STYLE" || tag === "SCRIPT" || tag === "TEMPLATE" || tag === "NOSCRIPT") return 0;
      if (dom.styleOf(node).display === "none") return hiddenCost;
      const isVisible = !dom.isHiddenForAria(node) || dom.boxOf(node).visible;
      noticeHost(node);
      const isLarge = node.childNodes.length > options.childrenMax;
      let own = isVisible ? describe(node, isLarge) : null;
      if (own === null && isLarge) own = emptyGeneric(node);
      if (own) into.children.push({ index: into.at, node: own });
      const cost = own ? costOf(own, walk.level) : hiddenCost;
      const level = own && own.role !== "generic" ? walk.level + 1 : walk.level;
      // What stands inside of a frame's element is for browsers that show no frames.
      if (holdsDocument(node)) return cost;
      const { depth } = walk;
      return cost + descend(own ?? into, node, { left: walk.left - cost, visible: isVisible, depth, level });
    }

    /** An element that would pass its many children on to its parent is kept, so that they can be paged through. */
    function emptyGeneric(element: Element): AriaNode {
      const { box, states } = { box: dom.boxOf(element), states: {} };
      return {
        ...top,
        element,
        role: "generic",
        box,
        states,
        children: [],
        ref: refFor(element),
        nameSources: new Set(),
      };
    }

    function descend(into: AriaNode, element: Element, walk: Walk): number {
      const owns = into.element === element && into !== top;
      const push = (text: string) => {
        if (text) into.children.push({ index: into.at, node: text });
      };
      const isBlock = dom.styleOf(element).display !== "inline" || element.nodeName === "BR";
      if (isBlock) push(" ");
      push(dom.cssText(element, "::before"));
      const isRoot = element === root;
      let used = 0;
      let index = -1;
      const children = dom.childrenOf(element);
      const count = (children as ArrayLike<Node> & Iterable<Node>).length;
      const first = isRoot ? options.offset : 0;
      const last = Math.min(count, first + options.childrenMax);
      for (const child of children) {
        index++;
        if (index < first) continue;
        const left = walk.left - used;
        if (index >= last || left <= 0 || walk.depth > depthMax) {
          if (owns) into.unseen = { count: count - index, offset: index };
          else if (into !== top) into.unseen ??= { count: count - index, offset: into.at };
          break;
        }
        if (owns) into.at = index;
        used += visit(into, child, {
          left: shareOf(left, last - index),
          visible: walk.visible,
          depth: walk.depth + 1,
          level: walk.level,
        });
      }
      for (const id of (element.getAttribute("aria-owns") ?? "").split(/\s+/)) {
        const owned = id ? document.getElementById(id) : null;
        if (owned)
          used += visit(into, owned, {
            left: walk.left - used,
            visible: walk.visible,
            depth: walk.depth + 1,
            level: walk.level,
          });
      }
      push(dom.cssText(element, "::after"));
      if (isBlock) push(" ");
      if (owns) addProperties(into, element);
      return used;
    }

    /** Each child may use four times its even share, but never what the ones after it need at least. */
    function shareOf(left: number, remaining: number): number {
      const reserve = Math.min(left * 0.3, (remaining - 1) * reserveEach);
      return Math.max(shareMin, Math.min(Math.ceil(left / remaining) * 4, left - reserve));
    }

    function addProperties(node: AriaNode, element: Element): void {
      if (node.role === "link" && element.hasAttribute("href"))
        node.url = shorten(element.getAttribute("href")!);
      const placeholder = element.getAttribute("placeholder");
      if (node.role === "textbox" && placeholder !== null && placeholder !== node.name)
        node.placeholder = placeholder;
    }

    active = document.hasFocus() ? document.activeElement : null;
    visit(top, root, { left: options.charsMax, visible: true, depth: 0, level: 0 });
    return top;
  }

  return { build, nodeOf };
}

export type Tree = ReturnType<typeof createTree>;
