/** What has to be true before an element is clicked or typed into, and whether the click then reached it. */
import type { Dom } from "./dom.ts";
import type { Roles } from "./roles.ts";

export type Readiness =
  | { state: "ready"; x: number; y: number }
  /** Done without input events: an option of a drop-down list, which has no place on the page. */
  | { state: "done" }
  /** Would be moving when clicked; ask again once `settled` has answered. */
  | { state: "moving" }
  | { state: "hidden" | "disabled" | "outside" | "unsuitable"; reason: string }
  | { state: "covered"; reason: string };

export interface Outcome {
  /** Null while no event has arrived, then whether it arrived at the target. */
  hit: boolean | null;
  reason: string;
  /** A form was sent; the page leaves once the browser gets to it. */
  formSent: boolean;
  /** The first field that was found wrong, as when a form is sent, and what the browser wants there; else empty. */
  invalid: string;
}

export function createAct({ dom, roles }: { dom: Dom; roles: Roles }) {
  const eventNames = [
    "pointerdown",
    "mousedown",
    "pointerup",
    "mouseup",
    "click",
    "auxclick",
    "dblclick",
    "contextmenu",
  ];
  let armed: { element: Element; hit: boolean | null; reason: string; until: number } | null = null;
  let formSent = false;
  let invalid = "";
  addEventListener(
    "invalid",
    ({ target }) => {
      if (invalid || !(target instanceof HTMLElement) || !("validationMessage" in target)) return;
      invalid = `${describe(target)}: ${target.validationMessage}`;
    },
    { capture: true },
  );
  addEventListener(
    "formdata",
    () => {
      formSent = true;
    },
    { capture: true },
  );

  function describe(element: Element): string {
    const tag = dom.tagOf(element).toLowerCase();
    const id = element.id ? ` id="${element.id}"` : "";
    const given = element.getAttribute("name");
    const name = given ? ` name="${given}"` : "";
    const className =
      typeof element.className === "string" && element.className ? ` class="${element.className}"` : "";
    const text = (element.textContent ?? "").trim().replace(/\s+/g, " ").slice(0, 40);
    return `<${tag}${id}${name}${className}>${text}</${tag}>`;
  }

  function deepestAt(x: number, y: number): Element | null {
    let at = document.elementFromPoint(x, y);
    while (at) {
      const inner: Element | null = dom.shadowOf(at)?.elementFromPoint(x, y) ?? null;
      if (!inner || inner === at) return at;
      at = inner;
    }
    return null;
  }

  function contains(outer: Element, inner: Element): boolean {
    for (let at: Element | null = inner; at; at = slotParent(at)) if (at === outer) return true;
    return false;
  }

  const slotParent = (element: Element) => element.assignedSlot ?? dom.parentOf(element);

  /** A label stands for its control: a styled checkbox is usually clicked through it. */
  function reaches(target: Element, hit: Element): boolean {
    if (contains(target, hit)) return true;
    const label = hit.closest("label");
    if (label?.control === target) return true;
    return target instanceof HTMLLabelElement && target.control === hit;
  }

  /** What an element is clicked at: itself, or with `display: contents` the first thing in it that has a box. */
  function boxedIn(node: Node): Element | Text | null {
    if (node instanceof Text) return dom.isTextShown(node) ? node : null;
    if (!(node instanceof Element)) return null;
    if (dom.styleOf(node).display !== "contents") return dom.boxOf(node).visible ? node : null;
    for (const child of dom.childrenOf(node)) {
      const boxed = boxedIn(child);
      if (boxed) return boxed;
    }
    return null;
  }

  function boxed(element: Element): Element | Range {
    const found = dom.styleOf(element).display === "contents" ? boxedIn(element) : element;
    if (!(found instanceof Text)) return found ?? element;
    const range = document.createRange();
    range.selectNode(found);
    return range;
  }

  function scrollTo(element: Element, alignment: ScrollLogicalPosition): void {
    const place = boxed(element);
    let at: Element | null = place instanceof Element ? place : element;
    // Only what has a box can be scrolled to; around a bare text that is the next ancestor with one.
    while (at && dom.styleOf(at).display === "contents") at = slotParent(at);
    at?.scrollIntoView({ block: alignment, inline: alignment, behavior: "instant" });
  }

  function visibleRects(element: Element): DOMRect[] {
    const inView: DOMRect[] = [];
    for (const rect of boxed(element).getClientRects()) {
      const left = Math.max(rect.left, 0);
      const top = Math.max(rect.top, 0);
      const width = Math.min(rect.right, innerWidth) - left;
      const height = Math.min(rect.bottom, innerHeight) - top;
      if (width >= 1 && height >= 1) inView.push(new DOMRect(left, top, width, height));
    }
    return inView.sort((a, b) => b.width * b.height - a.width * a.height);
  }

  /** The middle first; where something lies over it, four more places inside the element. */
  function* pointsOf(rect: DOMRect): Generator<{ x: number; y: number }> {
    for (const [partX, partY] of [
      [0.5, 0.5],
      [0.2, 0.5],
      [0.8, 0.5],
      [0.5, 0.2],
      [0.5, 0.8],
    ] as const)
      yield { x: rect.left + rect.width * partX, y: rect.top + rect.height * partY };
  }

  function isAnimated(element: Element): boolean {
    if (document.getAnimations().length === 0) return false;
    return document.getAnimations().some((animation) => {
      const target = (animation.effect as KeyframeEffect | null)?.target;
      return animation.playState === "running" && target instanceof Element && contains(target, element);
    });
  }

  function chooseOption(option: HTMLOptionElement): Readiness {
    const select = option.closest("select");
    if (!select) return { state: "hidden", reason: "the option belongs to no list" };
    if (roles.isDisabled(option) || roles.isDisabled(select))
      return { state: "disabled", reason: "it is disabled" };
    if (select.multiple) option.selected = !option.selected;
    else select.value = option.value;
    option.selected ||= !select.multiple;
    select.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    select.dispatchEvent(new Event("change", { bubbles: true }));
    return { state: "done" };
  }

  function prepareClick(element: Element, alignment: ScrollLogicalPosition, checkMotion: boolean): Readiness {
    dom.resetCaches();
    if (!element.isConnected) return { state: "hidden", reason: "it is no longer in the page" };
    if (element instanceof HTMLOptionElement && !visibleRects(element).length) return chooseOption(element);
    if (!dom.boxOf(element).visible) return { state: "hidden", reason: "it is not visible" };
    if (roles.isDisabledForAria(element)) return { state: "disabled", reason: "it is disabled" };
    if (checkMotion && isAnimated(element)) return { state: "moving" };
    let place = isWholeInView(element) ? placeToHit(element) : null;
    // In view as far as the window goes, it may still be scrolled away inside a list or lie below a fixed header.
    if (place?.state !== "ready") {
      scrollTo(element, alignment);
      place = placeToHit(element);
    }
    if (place.state === "ready") arm(element);
    return place;
  }

  function placeToHit(element: Element): Readiness {
    const rects = visibleRects(element);
    if (rects.length === 0)
      return { state: "outside", reason: "it lies outside of what can be scrolled into view" };
    let cover: Element | null = null;
    for (const rect of rects.slice(0, 3)) {
      for (const { x, y } of pointsOf(rect)) {
        const hit = deepestAt(x, y);
        if (hit && reaches(element, hit)) return { state: "ready", x, y };
        cover ??= hit;
      }
    }
    return {
      state: "covered",
      reason: cover ? `${describe(cover)} covers it` : "nothing is hit at its place",
    };
  }

  function isWholeInView(element: Element): boolean {
    const rect = boxed(element).getBoundingClientRect();
    return rect.top >= 0 && rect.left >= 0 && rect.bottom <= innerHeight && rect.right <= innerWidth;
  }

  /**
   * Between the look at the page and the event the element may have moved. The event itself is looked at before
   * the page sees it, and one that hits something else is swallowed.
   */
  function arm(element: Element): void {
    const armedForMs = 2_000;
    armed = { element, hit: null, reason: "", until: performance.now() + armedForMs };
    // Each time, because document.open() takes all listeners away; one that is there is not added again.
    for (const name of eventNames) addEventListener(name, inspect, { capture: true });
  }

  function inspect(event: Event): void {
    if (!armed || !event.isTrusted) return;
    if (performance.now() > armed.until) {
      // It comes from a page that was busy for long; the place may have changed, but it did arrive.
      armed.hit ??= true;
      return;
    }
    if (armed.hit === null && event instanceof MouseEvent) {
      const hit = deepestAt(event.clientX, event.clientY) ?? (event.target as Element);
      armed.hit = !armed.element.isConnected || reaches(armed.element, hit);
      if (!armed.hit) armed.reason = `${describe(hit)} was hit instead`;
    }
    if (armed.hit === false) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }

  function outcome(): Outcome {
    const answer = { hit: armed?.hit ?? null, reason: armed?.reason ?? "", formSent, invalid };
    armed = null;
    formSent = false;
    invalid = "";
    return answer;
  }

  /** Resolves when the element stayed in place from one frame to the next. */
  async function settled(element: Element, timeoutMs: number): Promise<boolean> {
    const until = performance.now() + timeoutMs;
    let last = element.getBoundingClientRect();
    while (performance.now() < until) {
      await nextFrame();
      const rect = element.getBoundingClientRect();
      if (rect.x === last.x && rect.y === last.y && rect.width === last.width && rect.height === last.height)
        return true;
      last = rect;
    }
    return false;
  }

  /** A page in the background draws no frames; the timer keeps the wait alive there. */
  const nextFrame = () =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, 100);
      requestAnimationFrame(() => {
        clearTimeout(timer);
        resolve();
      });
    });

  /** Resolves at the next change of the document, at the latest after `timeoutMs`. */
  function changed(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        observer.disconnect();
        clearTimeout(timer);
        resolve();
      };
      const observer = new MutationObserver(done);
      const timer = setTimeout(done, timeoutMs);
      observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    });
  }

  function chooseByText(select: HTMLSelectElement, text: string): Readiness {
    const wanted = text.trim();
    const option = [...select.options].find((one) => one.label.trim() === wanted || one.value === wanted);
    if (option) return chooseOption(option);
    const labels = [...select.options].slice(0, 20).map((one) => one.label.trim());
    return {
      state: "unsuitable",
      reason: `it has no option "${wanted}"; its options are: ${labels.join(", ")}`,
    };
  }

  /** Kinds of input that take a value as a whole and ignore keys in part. */
  const valueTypes = /^(date|time|datetime-local|month|week|color|range)$/;

  function wantedValue({ type, min, max, step }: HTMLInputElement): string {
    if (type === "range")
      return `it takes numbers from ${min || 0} to ${max || 100} in steps of ${step || 1}`;
    const examples: Record<string, string> = {
      date: "2026-01-31",
      time: "23:59",
      "datetime-local": "2026-01-31T23:59",
      month: "2026-01",
      week: "2026-W05",
      color: "#ff8800",
    };
    return `write it like ${examples[type]}, within what the field allows`;
  }

  function setValue(input: HTMLInputElement, text: string): Readiness {
    const before = input.value;
    input.focus();
    input.value = text;
    const isTaken =
      input.type === "range"
        ? Number(input.value) === Number(text)
        : input.value.toLowerCase() === text.toLowerCase();
    if (!isTaken) {
      input.value = before;
      return { state: "unsuitable", reason: `"${text}" is no ${input.type} value; ${wantedValue(input)}` };
    }
    input.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    input.dispatchEvent(new Event("change", { bubbles: true }));
    return { state: "done" };
  }

  /** Focuses and selects what is there, so that inserted text replaces it. */
  function prepareType(element: Element, text: string): Readiness {
    dom.resetCaches();
    if (!element.isConnected) return { state: "hidden", reason: "it is no longer in the page" };
    const field = fieldOf(element);
    if (!field)
      return {
        state: "unsuitable",
        reason: `${describe(element)} is no text field, list or editable element`,
      };
    if (!dom.boxOf(field).visible) return { state: "hidden", reason: "it is not visible" };
    if (roles.isDisabledForAria(field)) return { state: "disabled", reason: "it is disabled" };
    if (field instanceof HTMLSelectElement) return chooseByText(field, text);
    const isInput = field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement;
    if (isInput && field.readOnly) return { state: "disabled", reason: "it is read-only" };
    if (field instanceof HTMLInputElement) {
      if (valueTypes.test(field.type)) return setValue(field, text);
      if (field.type === "number" && text.trim() !== "" && Number.isNaN(Number(text)))
        return { state: "unsuitable", reason: `"${text}" is no number` };
      if (field.type === "file")
        return {
          state: "unsuitable",
          reason:
            "files cannot be typed; give it one with evaluate on this target: (e) => { const t = new DataTransfer(); t.items.add(new File(['text'], 'name.txt')); e.files = t.files; e.dispatchEvent(new Event('change', { bubbles: true })) }",
        };
      if (/^(checkbox|radio|submit|button|reset|image|hidden)$/.test(field.type))
        return {
          state: "unsuitable",
          reason: `an input of type ${field.type} takes no text; click it instead`,
        };
    }
    if (!isWholeInView(field)) scrollTo(field, "nearest");
    field.focus({ preventScroll: true });
    // What came of the input before this one is not of interest any more.
    outcome();
    if (isInput) field.select();
    else getSelection()?.selectAllChildren(field);
    return { state: "ready", x: 0, y: 0 };
  }

  /** Where lines are elements, the browser leaves the caret somewhere in the last of those that it inserted. */
  function caretToEnd(element: Element): void {
    const field = fieldOf(element);
    if (!field?.isContentEditable) return;
    getSelection()?.selectAllChildren(field);
    getSelection()?.collapseToEnd();
  }

  function fieldOf(element: Element): HTMLElement | null {
    const isField =
      element instanceof HTMLInputElement ||
      element instanceof HTMLTextAreaElement ||
      element instanceof HTMLSelectElement;
    if (isField) return element;
    if (element instanceof HTMLLabelElement && element.control) return fieldOf(element.control);
    return element instanceof HTMLElement && element.isContentEditable ? element : null;
  }

  return { prepareClick, prepareType, caretToEnd, outcome, settled, changed, describe, deepestAt, reaches };
}

export type Act = ReturnType<typeof createAct>;
