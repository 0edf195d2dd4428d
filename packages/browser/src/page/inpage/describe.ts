/** One element as a node of the aria tree. */
import type { Affordances } from "./affordances.ts";
import type { Covers } from "./covers.ts";
import type { Box, Dom } from "./dom.ts";
import type { Names } from "./names.ts";
import type { Roles } from "./roles.ts";
import type { States } from "./states.ts";

export interface AriaChild {
  /** Position of the child of this node's element under which it was found; what `offset` counts. */
  index: number;
  node: AriaNode | string;
}

export interface Marks {
  editable: boolean;
  /** A script listens to clicks on it, and nothing else about it says so. */
  clickable: boolean;
  inert: boolean;
  covered: boolean;
}

export interface AriaNode {
  element: Element;
  role: string;
  name: string;
  ref: string | null;
  box: Box;
  active: boolean;
  states: States;
  marks: Marks;
  isAriaHidden: boolean;
  url?: string;
  placeholder?: string;
  /** What a thing without a name looks like in the source. */
  hint?: string;
  /** It gets a line even if there is nothing to say about it: it can be clicked or typed into, or is the target. */
  isKept: boolean;
  /** Asked for by its ref or selector: shown as it is, with its name. */
  isTarget: boolean;
  /** A picture of its own, and not the icon of something. */
  isPicture: boolean;
  children: AriaChild[];
  /** Children that were not looked at: how many, and where to go on. */
  unseen?: { count: number; offset: number };
  nameSources: Set<Element>;
  at: number;
}

export interface DescribeOptions {
  isTarget: boolean;
  /** It has many children, which are its own and not its parent's. */
  isLarge: boolean;
  inert: boolean;
}

export interface DescribeTools {
  dom: Dom;
  roles: Roles;
  names: Names;
  affordances: Affordances;
  covers: Covers;
  refFor: (element: Element) => string;
  /** Told of elements that are left out and may be there to be clicked all the same. */
  noticeSilent: (element: Element) => void;
}

export function createDescriber(tools: DescribeTools) {
  const { dom, roles, names, affordances, covers, refFor, noticeSilent } = tools;
  const pictureSidesMin = { IMG: 10, CANVAS: 16, VIDEO: 16, other: 48 };
  let active: Element | null = null;
  let showsLooks = false;

  function begin(looks: boolean): void {
    showsLooks = looks;
    active = document.hasFocus() ? document.activeElement : null;
    affordances.begin();
    covers.begin();
  }

  function holdsDocument(element: Element): boolean {
    const tag = dom.tagOf(element);
    if (tag === "IFRAME" || tag === "FRAME") return true;
    if (tag === "OBJECT") return (element as HTMLObjectElement).contentWindow !== null;
    // An <embed> does not tell what it holds.
    return (
      tag === "EMBED" &&
      /^(text\/html|application\/xhtml|application\/pdf|image\/svg)|^$/.test(
        (element as HTMLEmbedElement).type,
      )
    );
  }

  function empty(element: Element, role: string): AriaNode {
    return {
      element,
      role,
      name: "",
      nameSources: new Set(),
      ref: null,
      box: { visible: true, inline: false, cursor: "" },
      active: false,
      states: {},
      marks: { editable: false, clickable: false, inert: false, covered: false },
      isAriaHidden: false,
      isKept: false,
      isTarget: false,
      isPicture: false,
      children: [],
      at: 0,
    };
  }

  function startsPointer(element: Element, box: Box): boolean {
    if (box.cursor !== "pointer") return false;
    const parent = dom.parentOf(element);
    return !parent || dom.styleOf(parent).cursor !== "pointer";
  }

  /** A plain <span>text</span> reads as text of its parent, unless there is more to it. */
  function isPlainText(element: Element, box: Box): boolean {
    if (element.childNodes.length !== 1 || !(element.firstChild instanceof Text)) return false;
    if (element.getAttribute("aria-label")?.trim() || startsPointer(element, box)) return false;
    if (dom.tagOf(element) === "ABBR" && element.getAttribute("title")?.trim()) return false;
    if (
      affordances.isClickable(element) ||
      affordances.takesFocus(element) ||
      affordances.isEditable(element)
    )
      return false;
    noticeText(element);
    return true;
  }

  /** A word among others can be there to be clicked; what stands alone is clicked through its parent. */
  function noticeText(element: Element): void {
    const tag = dom.tagOf(element);
    if (!/^(SPAN|I|A|FONT|TEXT|TSPAN)$/.test(tag) && !tag.includes("-")) return;
    const hasNeighbour = [element.previousSibling, element.nextSibling].some(
      (node) => node instanceof Element || (node instanceof Text && node.data.trim() !== ""),
    );
    if (hasNeighbour || (element.parentElement?.childElementCount ?? 0) > 1) noticeSilent(element);
  }

  function isPicture(element: Element, role: string): boolean {
    const tag = dom.tagOf(element);
    if (role !== "img" && tag !== "CANVAS" && tag !== "VIDEO") return false;
    const sideMin = pictureSidesMin[tag as "IMG"] ?? pictureSidesMin.other;
    const { width, height } = element.getBoundingClientRect();
    return width >= sideMin && height >= sideMin;
  }

  const isUnreadable = (text: string) => /^[\s\ue000-\uf8ff]*$/.test(text);

  function describe(element: Element, options: DescribeOptions): AriaNode | null {
    const isFrame = holdsDocument(element);
    const known = roles.roleOf(element);
    let role = isFrame ? "iframe" : (known ?? "generic");
    if (role === "presentation" || role === "none") {
      if (!options.isTarget) return null;
      role = "generic";
    }
    const box = dom.boxOf(element);
    const keepsText = options.isLarge || options.isTarget;
    if (role === "generic" && box.inline && !keepsText && isPlainText(element, box)) return null;
    const node = empty(element, role);
    const name = names.nameOf(element, isFrame ? role : (known ?? ""));
    const isReachable = box.visible && (isFrame || dom.receivesPointer(element));
    node.name = name.text;
    node.nameSources = name.sources;
    node.box = box;
    node.ref = isReachable ? refFor(element) : null;
    node.active = element === active;
    node.isAriaHidden = element.getAttribute("aria-hidden")?.toLowerCase() === "true";
    node.isTarget = options.isTarget;
    node.isKept = options.isTarget;
    node.marks.inert = options.inert;
    if (isFrame) return node;
    node.states = roles.statesOf(element, role);
    addValue(node);
    addAffordances(node);
    return node;
  }

  /** A password is not told; that there is one is. */
  const masked = (value: string) => (value === "" ? "" : "••••••");

  function addValue(node: AriaNode): void {
    const { element, role } = node;
    if (element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement) {
      if (!/^(checkbox|radio|file)$/.test(element.type))
        node.children.push({
          index: 0,
          node: element.type === "password" ? masked(element.value) : element.value,
        });
      return;
    }
    const value = affordances.valueText(element, role);
    if (value !== null) node.children.push({ index: 0, node: `${value} ` });
  }

  function addAffordances(node: AriaNode): void {
    const { element, role, marks, box } = node;
    const isInteractive = affordances.isInteractive(role);
    marks.editable = affordances.isEditable(element);
    node.isKept ||= marks.editable;
    if (!node.ref) return;
    const isClickable = !isInteractive && affordances.isClickable(element);
    const canFocus = !isInteractive && affordances.takesFocus(element);
    marks.clickable = isClickable && box.cursor !== "pointer";
    node.isKept ||= isClickable || canFocus;
    node.isPicture = !node.name && isPicture(element, role);
    const isOwnTarget =
      isInteractive || isClickable || canFocus || (!node.name && startsPointer(element, box));
    if (isOwnTarget && !marks.inert) covers.noticeControl(node);
    if ((isOwnTarget || node.isPicture || marks.editable) && isUnreadable(node.name)) {
      // Of the parts of a drawing the colour matters even where there is a letter in them.
      const isSilent = isInteractive || isDrawn(element) || isUnreadable(element.textContent ?? "");
      if (isSilent) node.hint = affordances.hintOf(element);
    } else if (showsLooks && isLook(node)) {
      node.isKept = true;
      node.hint = affordances.hintOf(element);
    }
  }

  /** Part of a drawing, or an empty thing of some colour: there is nothing to read, but something to see. */
  function isLook({ element, role, name }: AriaNode): boolean {
    if (role !== "generic" || name) return false;
    if (isDrawn(element)) return isPicture((element as SVGElement).ownerSVGElement ?? element, "img");
    return affordances.isColoured(element);
  }

  const isDrawn = (element: Element) =>
    element instanceof SVGGeometryElement || element instanceof SVGTextContentElement;

  function shorten(url: string): string {
    if (!url.startsWith("data:")) return url;
    const comma = url.indexOf(",");
    return comma === -1 ? url : `${url.slice(0, comma)},…`;
  }

  function addProperties(node: AriaNode): void {
    const { element, role } = node;
    if (/^(link|doc-(backlink|biblioref|glossref|noteref))$/.test(role)) {
      const href =
        element.getAttribute("href") ?? element.getAttributeNS("http://www.w3.org/1999/xlink", "href");
      if (href !== null) node.url = shorten(href);
    }
    const placeholder = element.getAttribute("placeholder");
    if (role === "textbox" && placeholder !== null && placeholder !== node.name)
      node.placeholder = placeholder;
  }

  return { begin, empty, describe, addProperties, holdsDocument, isInert: affordances.isInert };
}

export type Describer = ReturnType<typeof createDescriber>;
