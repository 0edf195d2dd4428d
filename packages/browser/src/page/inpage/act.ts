/** What has to be true before an element is clicked, and where it is clicked then. */
import type { Brief } from "./brief.ts";
import type { Dom } from "./dom.ts";
import type { Hit, Point } from "./hit.ts";
import type { Roles } from "./roles.ts";
import type { Watch } from "./watch.ts";

export type Readiness =
  | {
      state: "ready";
      x: number;
      y: number;
      /** The pointer has to move a little where it is before it goes there. */
      isStirNeeded?: boolean;
    }
  /** Done without input events: an option of a drop-down list, which has no place on the page. */
  | { state: "done" }
  /** Would be moving when clicked; ask again once `settled` has answered. */
  | { state: "moving" }
  | { state: "hidden" | "disabled" | "outside" | "unsuitable"; reason: string }
  | { state: "covered"; reason: string };

/** What the pointer is to do with an element. */
export interface ClickRequest {
  alignment: ScrollLogicalPosition;
  checkMotion: boolean;
  /** A place inside the element, from its upper left corner; null: where it can be hit best. */
  position: Point | null;
  /** `over`: be there, without a press. */
  purpose: "click" | "press" | "over";
  clicks: number;
  timeoutMs: number;
}

interface ActTools {
  dom: Dom;
  roles: Roles;
  hit: Hit;
  watch: Watch;
  brief: Brief;
  frame: () => Promise<void>;
  /** The document itself, as observers want it. */
  page: Document;
}

export function createAct({ dom, roles, hit, watch, brief, frame, page }: ActTools) {
  function isAnimated(element: Element): boolean {
    const animations = document.getAnimations();
    return animations.some((animation) => {
      const target = (animation.effect as KeyframeEffect | null)?.target;
      return animation.playState === "running" && target instanceof Element && hit.contains(target, element);
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

  /** Its events go into a document of its own, where this one does not see them. */
  const holdsDocument = (element: Element) => /^(IFRAME|FRAME|OBJECT|EMBED)$/.test(dom.tagOf(element));

  function prepareClick(element: Element, request: ClickRequest): Readiness {
    dom.resetCaches();
    const { alignment, purpose, clicks, timeoutMs } = request;
    if (!element.isConnected) return { state: "hidden", reason: "it is no longer in the page" };
    const isOption = element instanceof HTMLOptionElement && hit.visibleRects(element).length === 0;
    if (isOption && purpose === "click") return chooseOption(element);
    if (!dom.boxOf(hit.shownAs(element)).visible) return { state: "hidden", reason: "it is not visible" };
    if (purpose !== "over" && roles.isDisabledForAria(element))
      return { state: "disabled", reason: "it is disabled" };
    if (request.checkMotion && isAnimated(element)) return { state: "moving" };
    const find = () => (request.position ? placeAt(element, request.position) : placeToHit(element));
    let place = hit.isWholeInView(element) ? find() : null;
    // In view as far as the window goes, it may still be scrolled away inside a list or lie below a fixed header.
    if (place?.state !== "ready" && place?.state !== "unsuitable") {
      hit.scrollTo(element, alignment);
      place = find();
    }
    if (place.state !== "ready" || purpose === "over") return place;
    if (!holdsDocument(element)) watch.arm({ element, until: purpose, clicks, timeoutMs });
    return { ...place, isStirNeeded: watch.hasSlippedUnder() };
  }

  function placeToHit(element: Element): Readiness {
    const found = hit.placeToHit(element);
    if (!found) return { state: "outside", reason: "it lies outside of what can be scrolled into view" };
    return "place" in found ? { state: "ready", ...found.place } : { state: "covered", reason: found.cover };
  }

  function placeAt(element: Element, position: Point): Readiness {
    const { left, top, width, height } = hit.boxed(hit.shownAs(element)).getBoundingClientRect();
    if (position.x < 0 || position.y < 0 || position.x > width || position.y > height)
      return {
        state: "unsuitable",
        reason: `the position ${position.x},${position.y} is outside of it; it is ${Math.round(width)} wide and ${Math.round(height)} high`,
      };
    const [x, y] = [left + position.x, top + position.y];
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight)
      return { state: "outside", reason: "the position lies outside of what can be scrolled into view" };
    const found = hit.deepestAt(x, y);
    if (found && hit.reaches(element, found)) return { state: "ready", x, y };
    return {
      state: "covered",
      reason: found ? `${brief(found)} covers it at that position` : "nothing is hit at that position",
    };
  }

  /** Without a doctype a plain ":hover" matches links only. */
  const hovered = ":hover:not(x-none)";

  /** Whether the pointer is over it, as the browser sees it. */
  const isHovered = (element: Element) =>
    element.matches(hovered) || hit.shownAs(element).matches(hovered) || holdsDocument(element);

  /** Resolves when the element stayed in place from one frame to the next. */
  async function settled(element: Element, timeoutMs: number): Promise<boolean> {
    const until = performance.now() + timeoutMs;
    let last = element.getBoundingClientRect();
    while (performance.now() < until) {
      await frame();
      const rect = element.getBoundingClientRect();
      if (rect.x === last.x && rect.y === last.y && rect.width === last.width && rect.height === last.height)
        return true;
      last = rect;
    }
    return false;
  }

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
      observer.observe(page, { subtree: true, childList: true, attributes: true, characterData: true });
    });
  }

  /** Whether nothing changes and nothing moves for a while; false after `timeoutMs`, or when something did. */
  async function quiet(timeoutMs: number): Promise<boolean> {
    const quietMs = 60;
    const until = performance.now() + timeoutMs;
    let changes = 0;
    const observer = new MutationObserver(() => changes++);
    observer.observe(page, { subtree: true, childList: true, attributes: true });
    const isMoving = () =>
      document.getAnimations().some(({ playState, effect }) => {
        return playState === "running" && Number.isFinite(effect?.getComputedTiming().endTime as number);
      });
    let isQuiet = false;
    for (let seen = -1; performance.now() < until; seen = changes) {
      if (seen === changes && !isMoving()) {
        isQuiet = changes === 0;
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, quietMs));
    }
    observer.disconnect();
    return isQuiet;
  }

  return { prepareClick, chooseOption, isHovered, settled, changed, quiet };
}

export type Act = ReturnType<typeof createAct>;
