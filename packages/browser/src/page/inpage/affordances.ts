/** What can be done with an element, as far as neither its role nor its states tell. */
import type { Dom } from "./dom.ts";
import type { Roles } from "./roles.ts";

export interface HitTest {
  deepestAt: (x: number, y: number) => Element | null;
  /** Whether a click that lands on `hit` counts for `target`. */
  reaches: (target: Element, hit: Element) => boolean;
}

export function createAffordances({ dom, roles, hits }: { dom: Dom; roles: Roles; hits: HitTest }) {
  const words = (text: string) => new Set(text.split(" "));
  const clickAttributes =
    "onclick onmousedown onmouseup onpointerdown onpointerup ontouchstart ondblclick".split(" ");
  const interactive = words(
    "button checkbox combobox link menuitem menuitemcheckbox menuitemradio option radio searchbox slider " +
      "spinbutton switch tab textbox treeitem",
  );
  const valueRoles = words("meter progressbar scrollbar slider spinbutton");
  const hintCharsMax = 80;
  /** Hit tests in one walk; a page with more controls than this in view is not to be worked through one by one. */
  const hitTestsMax = 300;
  /** Elements of which the browser says that a script listens to their clicks. */
  const listening = new WeakSet<Element>();
  let hitTests = 0;
  let modal: Element | null = null;
  /** What the modal dialog stands in is no part of it, but does not hide it either. */
  let aroundModal = new Set<Element>();

  function begin(): void {
    hitTests = 0;
    const open = [...document.querySelectorAll(":modal")];
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
    const given = element.getAttribute("contenteditable");
    if (given !== null) return given.toLowerCase() !== "false";
    if (element === document.body) return document.designMode === "on";
    const context = (element as { editContext?: unknown }).editContext;
    return context !== undefined && context !== null;
  }

  /** Clicks on it do something although its role does not say so. */
  function isClickable(element: Element): boolean {
    return listening.has(element) || clickAttributes.some((name) => element.hasAttribute(name));
  }

  const takesFocus = (element: Element) => element.hasAttribute("tabindex") && roles.isFocusable(element);

  const isInteractive = (role: string) => interactive.has(role);

  /** Something lies over it that scrolling will not move away. */
  function isCovered(element: Element): boolean {
    if (hitTests >= hitTestsMax) return false;
    const rect = [...element.getClientRects()].find(({ width, height }) => width >= 1 && height >= 1);
    if (!rect) return false;
    const points = [0.5, 0.2, 0.8].map((part) => ({
      x: rect.left + rect.width * part,
      y: rect.top + rect.height / 2,
    }));
    if (points.some(({ x, y }) => x < 0 || y < 0 || x >= innerWidth || y >= innerHeight)) return false;
    hitTests++;
    let cover: Element | null = null;
    for (const { x, y } of points) {
      const hit = hits.deepestAt(x, y);
      if (!hit || hits.reaches(element, hit) || hit.contains(element)) return false;
      cover = hit;
    }
    return !isScrolledAway(element, points[0]!) && !isPassing(cover!);
  }

  /** In view as far as the window goes, but scrolled out of the list around it. */
  function isScrolledAway(element: Element, { x, y }: { x: number; y: number }): boolean {
    for (let at = dom.parentOf(element); at; at = dom.parentOf(at)) {
      if (dom.styleOf(at).overflow === "visible") continue;
      const { left, top, right, bottom } = at.getBoundingClientRect();
      if (x < left || x > right || y < top || y > bottom) return true;
    }
    return false;
  }

  /** A header or footer that stays in place while the page below is scrolled. */
  function isPassing(cover: Element): boolean {
    const { scrollHeight } = document.scrollingElement ?? document.documentElement;
    if (scrollHeight <= innerHeight) return false;
    for (let at: Element | null = cover; at; at = dom.parentOf(at)) {
      const { position } = dom.styleOf(at);
      if (position !== "fixed" && position !== "sticky") continue;
      const { width, height } = at.getBoundingClientRect();
      return width * height < (innerWidth * innerHeight) / 2;
    }
    return false;
  }

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

  function lookOf(element: Element): string {
    const tag = dom.tagOf(element).toLowerCase();
    const id = element.id ? `#${element.id}` : "";
    const classes = [...element.classList].map((name) => `.${name}`).join("");
    const name = element.getAttribute("name");
    const source =
      fileName(element.getAttribute("src")) ||
      fileName(element.getAttribute("href") ?? element.getAttribute("xlink:href")) ||
      fileName(/url\("(.*?)"\)/.exec(dom.styleOf(element).backgroundImage)?.[1] ?? null);
    const fill = element instanceof SVGElement ? element.getAttribute("fill") : null;
    return [
      `${tag}${id}${classes}`,
      name ? `name=${name}` : "",
      source ? `src=${source}` : "",
      fill ? `fill=${fill}` : "",
    ]
      .filter(Boolean)
      .join(" ");
  }

  /** What a control without a name looks like in the source: of itself, or of the icon in it. */
  function hintOf(element: Element): string | undefined {
    const icon = element.querySelector("img, svg use, svg, i, span");
    const looks = [element, icon].flatMap((each) => (each ? [lookOf(each)] : []));
    const telling = looks.filter((look) => /[#.= ]/.test(look));
    if (
      telling.length === 0 &&
      !/^(CANVAS|VIDEO|AUDIO)$/.test(dom.tagOf(element)) &&
      !(element instanceof SVGElement)
    )
      return undefined;
    const text = (telling.length > 0 ? telling : looks.slice(0, 1)).join(" > ");
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
    isCovered,
    valueText,
    hintOf,
  };
}

export type Affordances = ReturnType<typeof createAffordances>;
