/** Finds elements by ref, CSS, `text=` and `role=`, through open and closed shadow roots. */
import type { Dom } from "./dom.ts";
import type { Hit } from "./hit.ts";
import type { Names } from "./names.ts";
import type { Roles } from "./roles.ts";

export interface Located {
  element: Element | null;
  /** How many elements matched; the first visible one is taken. */
  matches: number;
  /** Set when the target text itself is wrong. */
  problem?: string;
}

interface LocateTools {
  dom: Dom;
  roles: Roles;
  names: Names;
  hit: Hit;
}

export function createLocate({ dom, roles, names, hit }: LocateTools) {
  /** Of this many that hold a text the likeliest is taken. */
  const weighedMax = 20;
  const elementsMax = 50_000;
  const unread = /^(SCRIPT|STYLE|NOSCRIPT|TEMPLATE|HEAD|TITLE)$/;
  const flat = (text: string) => text.trim().replace(/\s+/g, " ");

  /** Every element of the composed tree, shadow content after its host. */
  function* everyElement(root: ParentNode): Generator<Element> {
    let count = 0;
    const stack: Iterator<Element>[] = [root.querySelectorAll("*")[Symbol.iterator]()];
    while (stack.length > 0) {
      const { value, done } = stack[stack.length - 1]!.next();
      if (done || !value) {
        stack.pop();
        continue;
      }
      yield value;
      if (++count > elementsMax) return;
      const shadow = dom.shadowOf(value);
      if (shadow) stack.push(shadow.querySelectorAll("*")[Symbol.iterator]());
    }
  }

  function* everyRoot(): Generator<ParentNode> {
    yield document;
    for (const element of everyElement(document)) {
      const shadow = dom.shadowOf(element);
      if (shadow) yield shadow;
    }
  }

  function byCss(selector: string): Element[] {
    const words = /:has-text\(\s*(?:"([^"]*)"|'([^']*)'|([^)]*))\s*\)/.exec(selector);
    const wanted = flat(words?.[1] ?? words?.[2] ?? words?.[3] ?? "").toLowerCase();
    const plain = words ? selector.replace(words[0], "") : selector;
    const steps = plain.split(">>").map((step) => step.trim() || "*");
    let found = steps.length > 1 ? byChain(steps) : [...document.querySelectorAll(plain)];
    if (found.length === 0 && steps.length === 1) {
      for (const root of everyRoot()) if (root !== document) found.push(...root.querySelectorAll(plain));
      // `x-list button`: the one may stand inside a shadow root of the other.
      const parts = plain.match(/(?:\[[^\]]*\]|\([^)]*\)|[^\s([])+/g) ?? [];
      if (found.length === 0 && parts.length > 1 && !parts.some((part) => /^[>+~,]|,$/.test(part)))
        found = byChain(parts);
    }
    if (!words) return found;
    found = found.filter((element) =>
      flat(element.textContent ?? "")
        .toLowerCase()
        .includes(wanted),
    );
    return found.filter((element) => !found.some((other) => other !== element && element.contains(other)));
  }

  /** Elements that match the last selector inside of ones that match those before it, across shadow boundaries. */
  function byChain(steps: string[]): Element[] {
    const last = steps.at(-1)!;
    const isWithin = (element: Element) => {
      let step = steps.length - 2;
      for (let at = dom.parentOf(element); at && step >= 0; at = dom.parentOf(at))
        if (at.matches(steps[step]!)) step--;
      return step < 0;
    };
    const found: Element[] = [];
    for (const root of everyRoot()) found.push(...root.querySelectorAll(last));
    return found.filter(isWithin);
  }

  /** `text=Save` matches part of a text in any case, `text="Save"` the whole text exactly. */
  function byText(query: string): Element[] {
    const exact = /^(["'])(.*)\1$/.exec(query);
    const wanted = flat(exact ? exact[2]! : query.toLowerCase());
    const matches = (text: string) =>
      exact ? flat(text) === wanted : flat(text).toLowerCase().includes(wanted);
    const found: Element[] = [];
    for (const element of everyElement(document)) {
      if (unread.test(dom.tagOf(element))) continue;
      const isButton = element instanceof HTMLInputElement && /^(button|submit|reset)$/.test(element.type);
      const own = isButton ? element.value : ownText(element);
      if (own && matches(own)) found.push(element);
    }
    return found.length > 0 ? found : deepest(matches);
  }

  function ownText(element: Element): string {
    let text = "";
    for (const node of element.childNodes) if (node instanceof Text) text += node.data;
    return text;
  }

  /** A text that runs over several elements: the smallest element that holds all of it. */
  function deepest(matches: (text: string) => boolean): Element[] {
    let at: HTMLElement | null = document.body;
    if (!at || !matches(at.textContent ?? "")) return [];
    for (;;) {
      const next: Element | undefined = [...at.children].find(
        (child) => !unread.test(dom.tagOf(child)) && matches(child.textContent ?? ""),
      );
      if (!(next instanceof HTMLElement)) break;
      at = next;
    }
    // The text may have been that of a script, which nobody sees.
    return matches(at.innerText) ? [at] : [];
  }

  /** `role=button`, `role=button[name="Save"]`, `role=button[name=sav]`. */
  function byRole(query: string): Element[] | null {
    const parts = /^([a-z-]+)\s*(?:\[\s*name\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\]]*))\s*\])?$/i.exec(
      query.trim(),
    );
    if (!parts) return null;
    const word = parts[1]!.toLowerCase();
    const role = word === "image" ? "img" : word;
    const exact = parts[2] ?? parts[3];
    const part = parts[4]?.trim().toLowerCase();
    const found: Element[] = [];
    /** Equal but for the case, which a style may have changed. */
    const similar: Element[] = [];
    for (const element of everyElement(document)) {
      if (roles.roleOf(element) !== role || dom.isHiddenForAria(element)) continue;
      const name = exact === undefined && part === undefined ? "" : flat(names.nameOf(element, role).text);
      if (part !== undefined && !name.toLowerCase().includes(part)) continue;
      if (exact !== undefined && name.toLowerCase() !== flat(exact).toLowerCase()) continue;
      (exact === undefined || name === flat(exact) ? found : similar).push(element);
    }
    return found.length > 0 ? found : similar;
  }

  function locate(target: string): Located {
    dom.resetCaches();
    let found: Element[] | null;
    if (target.startsWith("text=")) found = byText(target.slice(5));
    else if (target.startsWith("role=")) found = byRole(target.slice(5));
    else {
      try {
        found = byCss(target.startsWith("css=") ? target.slice(4) : target);
      } catch {
        found = null;
      }
    }
    if (!found) {
      const problem = `"${target}" is not a ref, a CSS selector, text=… or role=…[name="…"].`;
      return { element: null, matches: 0, problem };
    }
    const visible = found.filter((element) => dom.boxOf(element).visible);
    const best = target.startsWith("text=") ? likeliest(visible, target.slice(5)) : visible[0];
    return { element: best ?? found[0] ?? null, matches: found.length };
  }

  const control = "a, button, input, select, textarea, label, option, summary, [role], [onclick], [tabindex]";

  /** Of several that hold a text: one that is the whole text, then one to be acted on, then one that is not covered. */
  function likeliest(found: Element[], query: string): Element | undefined {
    const wanted = flat(query.replace(/^(["'])(.*)\1$/, "$2")).toLowerCase();
    const weigh = (element: Element) => {
      const around = element.closest(control);
      const isWhole = flat(element.textContent ?? "").toLowerCase() === wanted;
      const isControl =
        around !== null &&
        !/^(heading|paragraph|none|presentation|group|dialog|alert|status)$/.test(
          roles.roleOf(around) ?? "none",
        );
      return (isWhole ? 4 : 0) + (isControl ? 2 : 0) + (isCovered(element) ? 0 : 1);
    };
    let best: Element | undefined;
    let most = -1;
    for (const element of found.slice(0, weighedMax)) {
      const weight = weigh(element);
      if (weight > most) [best, most] = [element, weight];
    }
    return best;
  }

  function isCovered(element: Element): boolean {
    const { left, top, width, height } = element.getBoundingClientRect();
    const [x, y] = [left + width / 2, top + height / 2];
    if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return false;
    const found = hit.deepestAt(x, y);
    return found !== null && !hit.reaches(element, found) && !found.contains(element);
  }

  return { locate };
}

export type Locate = ReturnType<typeof createLocate>;
