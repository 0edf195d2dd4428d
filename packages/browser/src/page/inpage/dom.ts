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
  /** Closed shadow roots cannot be reached from script; the tool hands them in. */
  const closedRoots = new WeakMap<Element, ShadowRoot>();
  const memos: Map<Element, unknown>[] = [];

  /** Answers about layout and style, kept for one walk only. */
  function memo<V>(): Map<Element, V> {
    const made = new Map<Element, V>();
    memos.push(made);
    return made;
  }

  function resetCaches(): void {
    for (const each of memos) each.clear();
    hasGenerated = null;
  }

  const styles = memo<CSSStyleDeclaration>();
  const shown = memo<boolean>();
  const hidden = memo<boolean>();
  const pointer = memo<boolean>();
  let range: Range | null = null;
  let hasGenerated: boolean | null = null;
  /** Shadow trees bring their own sheets, which are not looked through. */
  let hasShadow = false;

  function tagOf(element: Element): string {
    // A form with a control named "tagName" answers with that control.
    const name: unknown = element.tagName;
    return typeof name === "string" ? name.toUpperCase() : "FORM";
  }

  function shadowOf(element: Element): ShadowRoot | null {
    const root = element.shadowRoot ?? closedRoots.get(element) ?? null;
    if (root) hasShadow = true;
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

  /** Children in the order in which they are read: slotted nodes in their slot, then the shadow tree. */
  function childrenOf(element: Element): Iterable<Node> {
    if (element instanceof HTMLSlotElement) {
      const assigned = element.assignedNodes();
      if (assigned.length > 0) return assigned;
    }
    const root = shadowOf(element);
    if (!root) return element.childNodes;
    const light = [...element.childNodes].filter((node) => !slotOf(node as Element | Text));
    return [...light, ...root.childNodes];
  }

  function styleOf(element: Element): CSSStyleDeclaration {
    let style = styles.get(element);
    if (!style) {
      style = getComputedStyle(element);
      styles.set(element, style);
    }
    return style;
  }

  function isShown(element: Element): boolean {
    let answer = shown.get(element);
    if (answer === undefined) {
      answer = element.checkVisibility() && styleOf(element).visibility === "visible";
      shown.set(element, answer);
    }
    return answer;
  }

  function isTextShown(text: Node): boolean {
    range ??= document.createRange();
    range.selectNode(text);
    const { width, height } = range.getBoundingClientRect();
    return width > 0 && height > 0;
  }

  function boxOf(element: Element): Box {
    const style = styleOf(element);
    const { cursor, display } = style;
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

  /** display:none, aria-hidden or not slotted, by itself or through an ancestor. */
  function isRemoved(element: Element): boolean {
    const path: Element[] = [];
    let answer = false;
    for (let at: Element | null = element; at; at = parentOf(at)) {
      const known = hidden.get(at);
      if (known !== undefined) {
        answer = known;
        break;
      }
      path.push(at);
      if (
        isUnslotted(at) ||
        styleOf(at).display === "none" ||
        at.getAttribute("aria-hidden")?.toLowerCase() === "true"
      ) {
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
      if (styleOf(element).display === "contents") {
        for (const child of element.childNodes) {
          if (child instanceof Element && !isHiddenForAria(child)) return false;
          if (child instanceof Text && isTextShown(child)) return false;
        }
        return true;
      }
      const isChoice = tag === "OPTION" && element.closest("select") !== null;
      if (!isChoice && !isShown(element)) return true;
    }
    return isRemoved(element);
  }

  function isTextLeftOut(text: Text): boolean {
    const parent = text.parentElement;
    if (!parent) return false;
    return isUnslotted(text) || (parent instanceof HTMLDetailsElement && !parent.open);
  }

  function receivesPointer(element: Element): boolean {
    let answer = pointer.get(element);
    if (answer === undefined) {
      const value = styleOf(element).pointerEvents;
      const parent = parentOf(element);
      answer = value ? value !== "none" : parent ? receivesPointer(parent) : true;
      pointer.set(element, answer);
    }
    return answer;
  }

  /** Most documents generate no text, and finding that out once saves two style look-ups for each element. */
  function generatesText(): boolean {
    hasGenerated ??= [...document.styleSheets, ...document.adoptedStyleSheets].some((sheet) => {
      try {
        return [...sheet.cssRules].some((rule) => /:(before|after)\b/.test(rule.cssText));
      } catch {
        // A sheet from elsewhere cannot be read.
        return true;
      }
    });
    return hasGenerated;
  }

  /** Text that a stylesheet adds before or after an element; only plain strings and attr() are understood. */
  function cssText(element: Element, pseudo: "::before" | "::after"): string {
    if (!generatesText() && element.localName !== "q" && !(hasShadow && element.getRootNode() !== document))
      return "";
    const style = getComputedStyle(element, pseudo);
    const content = style.content;
    if (!content || content === "none" || content === "normal") return "";
    if (style.display === "none" || style.visibility === "hidden") return "";
    const slash = content.match(/\/\s*("(?:[^"\\]|\\.)*")\s*$/);
    const source = slash ? slash[1]! : content;
    let text = "";
    let rest = source.trim();
    while (rest) {
      const part = /^(?:"((?:[^"\\]|\\.)*)"|attr\(([\w-]+)\))\s*/.exec(rest);
      if (!part) return "";
      text += part[2] ? (element.getAttribute(part[2]) ?? "") : part[1]!.replace(/\\(.)/g, "$1");
      rest = rest.slice(part[0].length);
    }
    return style.display === "inline" ? text : ` ${text} `;
  }

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
    for (const id of ids.split(/\s+/)) {
      const match = id ? root.querySelector(`#${CSS.escape(id)}`) : null;
      if (match && !found.includes(match)) found.push(match);
    }
    return found;
  }

  return {
    closedRoots,
    memo,
    resetCaches,
    tagOf,
    shadowOf,
    parentOf,
    childrenOf,
    styleOf,
    isShown,
    isTextShown,
    boxOf,
    isRemoved,
    isHiddenForAria,
    isTextLeftOut,
    receivesPointer,
    cssText,
    closest,
    elementsByIds,
  };
}

export type Dom = ReturnType<typeof createDom>;
