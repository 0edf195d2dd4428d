/**
 * The page as the other in-page parts see it: composed tree, styles, visibility.
 *
 * Everything in this folder runs inside the page, in a world of its own. Each part is one self-contained
 * function whose source text is sent there, so nothing outside the function may be referenced but types.
 */

export interface Box {
  visible: boolean;
  inline: boolean;
  cursor: string;
}

export function createDom() {
  /** More references than this in one attribute, or more owners in a document, are not worth the time. */
  const referencesMax = 200;
  const ownersMax = 1_000;
  /** Closed shadow roots cannot be reached from script; the tool hands them in. */
  const closedRoots = new WeakMap<Element, ShadowRoot>();
  const resets: (() => void)[] = [];

  /** Answers about layout and style are kept for one walk only; `forget` is called between walks. */
  function onReset(forget: () => void): void {
    resets.push(forget);
  }

  function kept<V>(): Map<Element, V> {
    const made = new Map<Element, V>();
    onReset(() => made.clear());
    return made;
  }

  /** The function with its answers kept, which are dear and asked for several times. */
  function memo<V>(answer: (element: Element) => V): (element: Element) => V {
    const known = kept<V>();
    return (element) => {
      let value = known.get(element);
      if (value === undefined) {
        value = answer(element);
        known.set(element, value);
      }
      return value;
    };
  }

  function resetCaches(): void {
    for (const forget of resets) forget();
  }

  const hidden = kept<boolean>();
  const styleOf = memo((element) => getComputedStyle(element));
  const displayOf = memo((element) => styleOf(element).display);
  /** For each document or shadow root: which element owns which, by aria-owns. */
  const ownersByRoot = new Map<Node, Map<Element, Element>>();
  onReset(() => ownersByRoot.clear());
  let range: Range | null = null;
  let hasShadow = false;
  /** All that were met so far; observers have to be told of each. */
  const shadowRoots = new Set<ShadowRoot>();

  function tagOf(element: Element): string {
    // A form with a control named "tagName" answers with that control.
    const name: unknown = element.tagName;
    return typeof name === "string" ? name.toUpperCase() : "FORM";
  }

  function shadowOf(element: Element): ShadowRoot | null {
    const root = element.shadowRoot ?? closedRoots.get(element) ?? null;
    if (root) {
      hasShadow = true;
      shadowRoots.add(root);
    }
    return root;
  }

  function parentOf(node: Node): Element | null {
    if (node.parentElement) return node.parentElement;
    return node.parentNode instanceof ShadowRoot ? node.parentNode.host : null;
  }

  function slotOf(node: Element | Text): HTMLSlotElement | null {
    if (node.assignedSlot) return node.assignedSlot;
    const parent = node.parentElement;
    const root = parent ? closedRoots.get(parent) : undefined;
    if (!root) return null;
    // assignedSlot is null across a closed boundary, so the slots themselves are asked.
    for (const slot of root.querySelectorAll("slot")) if (slot.assignedNodes().includes(node)) return slot;
    return null;
  }

  function isUnslotted(node: Element | Text): boolean {
    const parent = node.parentElement;
    return parent !== null && shadowOf(parent) !== null && slotOf(node) === null;
  }

  /**
   * aria-owns moves elements to another place of the tree. An owner that is hidden moves nothing, an element that
   * nobody can see is not moved, and the first owner wins.
   */
  function ownersIn(root: Document | ShadowRoot): Map<Element, Element> {
    let owners = ownersByRoot.get(root);
    if (owners) return owners;
    owners = new Map();
    ownersByRoot.set(root, owners);
    for (const owner of [...root.querySelectorAll("[aria-owns]")].slice(0, ownersMax)) {
      if (owner.closest('[aria-hidden="true" i]') || !isShown(owner)) continue;
      for (const owned of elementsByIds(owner, owner.getAttribute("aria-owns"))) {
        if (owners.has(owned) || !owned.checkVisibility()) continue;
        if (!isAbove(owned, owner, owners)) owners.set(owned, owner);
      }
    }
    return owners;
  }

  function isAbove(upper: Element, lower: Element, owners: Map<Element, Element>): boolean {
    for (let at: Element | null = lower; at; at = owners.get(at) ?? parentOf(at))
      if (at === upper) return true;
    return false;
  }

  /** Null where nothing is owned, which is nearly everywhere. */
  function ownersAround(node: Node): Map<Element, Element> | null {
    const owners = ownersIn(hasShadow ? (node.getRootNode() as Document | ShadowRoot) : document);
    return owners.size > 0 ? owners : null;
  }

  /** The element below which this one is read. */
  function treeParentOf(element: Element): Element | null {
    const owner = ownersAround(element)?.get(element);
    if (owner) return owner;
    return (hasShadow ? slotOf(element) : null) ?? parentOf(element);
  }

  /** Children in the order in which they are read: the shadow tree with what is slotted into it, then owned elements. */
  function childrenOf(element: Element): Iterable<Node> {
    const children = ownChildrenOf(element);
    const owners = ownersAround(element);
    if (!owners) return children;
    const kept = [...children].filter((node) => !(node instanceof Element && owners.has(node)));
    const owned = elementsByIds(element, element.getAttribute("aria-owns"));
    return [...kept, ...owned.filter((each) => owners.get(each) === element)];
  }

  function ownChildrenOf(element: Element): Iterable<Node> {
    if (element instanceof HTMLSlotElement) {
      const assigned = element.assignedNodes();
      if (assigned.length > 0) return assigned;
    }
    const root = shadowOf(element);
    if (!root) return element.childNodes;
    const light = [...element.childNodes].filter((node) => !slotOf(node as Element | Text));
    return [...light, ...root.childNodes];
  }

  /** The picture that shows an area of an image map; the area itself has no box. */
  function imageOf(area: Element): Element | null {
    const name = area.closest("map")?.name;
    const root = area.getRootNode() as Document | ShadowRoot;
    return name ? root.querySelector(`img[usemap="#${CSS.escape(name)}"]`) : null;
  }

  const isShown: (element: Element) => boolean = memo((element) => {
    if (element.localName !== "area")
      return element.checkVisibility() && styleOf(element).visibility === "visible";
    const image = imageOf(element);
    return image !== null && isShown(image);
  });

  function isTextShown(text: Node): boolean {
    range ??= document.createRange();
    range.selectNode(text);
    const { width, height } = range.getBoundingClientRect();
    return width > 0 && height > 0;
  }

  function boxOf(element: Element): Box {
    if (element.localName === "area") {
      const image = imageOf(element);
      return {
        visible: image !== null && boxOf(image).visible,
        inline: false,
        cursor: styleOf(element).cursor,
      };
    }
    const { cursor } = styleOf(element);
    const display = displayOf(element);
    if (display === "contents") {
      for (const child of element.childNodes) {
        if (child instanceof Element && boxOf(child).visible) return { visible: true, inline: false, cursor };
        if (child instanceof Text && isTextShown(child)) return { visible: true, inline: true, cursor };
      }
      return { visible: false, inline: false, cursor };
    }
    if (!isShown(element)) return { visible: false, inline: false, cursor };
    const { width, height } = element.getBoundingClientRect();
    return { visible: width > 0 && height > 0, inline: display === "inline", cursor };
  }

  const isUnrendered = (element: Element) =>
    element.localName === "area" ? !isShown(element) : displayOf(element) === "none";

  /** display:none, aria-hidden or not slotted: the element, or one that it is read below. */
  function isRemoved(element: Element): boolean {
    const path: Element[] = [];
    let answer = false;
    for (let at: Element | null = element; at; at = treeParentOf(at)) {
      const known = hidden.get(at);
      if (known !== undefined) {
        answer = known;
        break;
      }
      path.push(at);
      if (isUnslotted(at) || isUnrendered(at) || at.getAttribute("aria-hidden")?.toLowerCase() === "true") {
        answer = true;
        break;
      }
    }
    // Below the deciding ancestor everything shares its answer.
    for (const at of path) hidden.set(at, answer);
    return answer;
  }

  function isHiddenForAria(element: Element): boolean {
    const tag = tagOf(element);
    if (tag === "STYLE" || tag === "SCRIPT" || tag === "NOSCRIPT" || tag === "TEMPLATE") return true;
    if (tag !== "SLOT") {
      if (displayOf(element) === "contents") {
        for (const child of element.childNodes) {
          if (child instanceof Element && !isHiddenForAria(child)) return false;
          if (child instanceof Text && isTextShown(child)) return false;
        }
        return true;
      }
      const isChoice = (tag === "OPTION" || tag === "OPTGROUP") && element.closest("select") !== null;
      if (!isChoice && !isShown(element)) return true;
    }
    return isRemoved(element);
  }

  function isTextLeftOut(text: Text): boolean {
    const parent = text.parentElement;
    if (!parent) return false;
    return isUnslotted(text) || (parent instanceof HTMLDetailsElement && !parent.open);
  }

  const receivesPointer: (element: Element) => boolean = memo((element) => {
    const value = styleOf(element).pointerEvents;
    const parent = parentOf(element);
    return value ? value !== "none" : parent ? receivesPointer(parent) : true;
  });

  function closest(element: Element, selector: string): Element | null {
    for (let at: Element | null = element; at; ) {
      const found = at.closest(selector);
      if (found) return found;
      const root = at.getRootNode();
      at = root instanceof ShadowRoot ? root.host : null;
    }
    return null;
  }

  function elementsByIds(element: Element, ids: string | null): Element[] {
    if (!ids) return [];
    const root = element.getRootNode() as Document | ShadowRoot;
    const found: Element[] = [];
    for (const id of ids.split(/\s+/, referencesMax)) {
      const match = id ? root.querySelector(`#${CSS.escape(id)}`) : null;
      if (match && !found.includes(match)) found.push(match);
    }
    return found;
  }

  return {
    closedRoots,
    hasShadow: () => hasShadow,
    onReset,
    memo,
    resetCaches,
    tagOf,
    shadowOf,
    shadowRoots,
    parentOf,
    treeParentOf,
    childrenOf,
    imageOf,
    isUnrendered,
    styleOf,
    displayOf,
    isShown,
    isTextShown,
    boxOf,
    isRemoved,
    isHiddenForAria,
    isTextLeftOut,
    receivesPointer,
    closest,
    elementsByIds,
  };
}

export type Dom = ReturnType<typeof createDom>;
