/** What can be done with an element, as far as neither its role nor its states tell. */
import type { Dom } from "./dom.ts";
import type { Roles } from "./roles.ts";

export function createAffordances(dom: Dom, roles: Roles) {
  const words = (text: string) => new Set(text.split(" "));
  const clickAttributes = words(
    "onclick onmousedown onmouseup onpointerdown onpointerup ontouchstart ondblclick",
  );
  const interactive = words(
    "button checkbox combobox link menuitem menuitemcheckbox menuitemradio option radio searchbox slider " +
      "spinbutton switch tab textbox treeitem",
  );
  const valueRoles = words("meter progressbar scrollbar slider spinbutton");
  const hintCharsMax = 80;
  /** Elements of which the browser says that a script listens to their clicks. */
  const listening = new WeakSet<Element>();
  let modal: Element | null = null;
  /** The elements around the modal dialog: they are not inert themselves, because the dialog in them is not. */
  let aroundModal = new Set<Element>();

  function begin(): void {
    const open: Element[] = [...document.getElementsByTagName("dialog")].filter((each) =>
      each.matches(":modal"),
    );
    modal = open.find((each) => each.contains(document.activeElement)) ?? open.at(-1) ?? null;
    aroundModal = new Set();
    for (let at = modal; at; at = dom.parentOf(at)) aroundModal.add(at);
  }

  /** Whether the page keeps all input away from it, itself or something that it stands in. */
  function isInert(element: Element, isParentInert: boolean): boolean {
    if (element === modal) return false;
    if (isParentInert || element.hasAttribute("inert")) return true;
    return modal !== null && !aroundModal.has(element) && !modal.contains(element);
  }

  function isEditable(element: Element): boolean {
    if (element === document.body && document.designMode === "on") return true;
    if (!element.hasAttributes()) return false;
    const given = element.getAttribute("contenteditable");
    if (given !== null) return /^(true|plaintext-only)?$/i.test(given);
    if (!element.hasAttribute("tabindex") && !element.hasAttribute("role")) return false;
    const context = (element as { editContext?: unknown }).editContext;
    return context !== undefined && context !== null;
  }

  /** Clicks on it do something although its role does not say so. */
  function isClickable(element: Element): boolean {
    if (listening.has(element)) return true;
    return element.hasAttributes() && element.getAttributeNames().some((name) => clickAttributes.has(name));
  }

  const takesFocus = (element: Element) => element.hasAttribute("tabindex") && roles.isFocusable(element);

  const isInteractive = (role: string) => interactive.has(role);

  const range = (value: string | number, min: string | number | null, max: string | number | null) =>
    max === null ? `${value}` : `${value} (${min ?? 0} to ${max})`;

  /** How far a slider, a progress bar or the like is; text fields show their value anyway. */
  function valueText(element: Element, role: string): string | null {
    if (!valueRoles.has(role) || element instanceof HTMLInputElement) return null;
    const text = element.getAttribute("aria-valuetext");
    if (text?.trim()) return text;
    const now = element.getAttribute("aria-valuenow");
    if (now) return range(now, element.getAttribute("aria-valuemin"), element.getAttribute("aria-valuemax"));
    if (element instanceof HTMLProgressElement)
      return element.position < 0 ? null : range(element.value, 0, element.max);
    return element instanceof HTMLMeterElement ? range(element.value, element.min, element.max) : null;
  }

  const fileName = (url: string | null) =>
    url && !/^(data|blob):/i.test(url) ? (/([^/?#]+)(?:[?#].*)?$/.exec(url)?.[1] ?? "") : "";

  /** The file that a picture comes from, or the part of a drawing that is used. */
  function sourceOf(element: Element): string {
    if (element instanceof SVGElement)
      return fileName(element.getAttribute("href") ?? element.getAttribute("xlink:href"));
    const background = /url\("(.*?)"\)/.exec(dom.styleOf(element).backgroundImage);
    return fileName(element.getAttribute("src")) || fileName(background?.[1] ?? null);
  }

  function colourOf(element: Element): string {
    const { fill, backgroundColor } = dom.styleOf(element);
    if (element instanceof SVGGeometryElement || element instanceof SVGTextContentElement)
      return `fill=${element.getAttribute("fill") ?? fill}`;
    return isBlank(element) && !/^rgba\(.* 0\)$/.test(backgroundColor) ? `background=${backgroundColor}` : "";
  }

  const isBlank = (element: Element) => element.childElementCount === 0 && !element.textContent?.trim();

  /** Nothing to read, but a colour or a picture to see. */
  const isColoured = (element: Element) =>
    isBlank(element) && (colourOf(element) !== "" || sourceOf(element) !== "");

  function lookOf(element: Element): string {
    const tag = dom.tagOf(element).toLowerCase();
    const given = element.getAttribute("id");
    const id = given ? `#${given}` : "";
    const classes = (element.getAttribute("class") ?? "").trim().replace(/(^|\s+)(?=\S)/g, ".");
    const name = element.getAttribute("name");
    const source = sourceOf(element);
    const isField = /^(input|textarea|select)$/.test(tag);
    const parts = [
      `${tag}${id}${classes}`,
      name ? `name=${name}` : "",
      source ? `src=${source}` : "",
      isField || source ? "" : colourOf(element),
    ];
    return parts.filter(Boolean).join(" ");
  }

  /** What a control without a name looks like in the source: of itself, or of the icon in it. */
  function hintOf(element: Element): string | undefined {
    const icon = element.querySelector("img, svg use, svg, i, span");
    const looks = [element, icon].flatMap((each) => (each ? [lookOf(each)] : []));
    const telling = looks.filter((look) => /[#. ]/.test(look) || /^(canvas|video|audio)$/.test(look));
    if (telling.length === 0) return undefined;
    const text = telling.join(" > ");
    return text.length > hintCharsMax ? `${text.slice(0, hintCharsMax)}…` : text;
  }

  return {
    begin,
    listening,
    isInert,
    isEditable,
    isClickable,
    takesFocus,
    isInteractive,
    valueText,
    isColoured,
    hintOf,
  };
}

export type Affordances = ReturnType<typeof createAffordances>;
