/** Finds elements by ref, CSS, `text=` and `role=`, through open and closed shadow roots. */
import type { Dom } from "./dom.ts";
import type { Names } from "./names.ts";
import type { Roles } from "./roles.ts";

export interface Located {
  element: Element | null;
  /** How many elements matched; the first visible one is taken. */
  matches: number;
  /** Set when the target text itself is wrong. */
  problem?: string;
}

export function createLocate({ dom, roles, names }: { dom: Dom; roles: Roles; names: Names }) {
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
    const direct = [...document.querySelectorAll(selector)];
    if (direct.length > 0) return direct;
    const found: Element[] = [];
    for (const root of everyRoot()) if (root !== document) found.push(...root.querySelectorAll(selector));
    return found;
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
    const visible = found.find((element) => dom.boxOf(element).visible);
    return { element: visible ?? found[0] ?? null, matches: found.length };
  }

  return { locate };
}

export type Locate = ReturnType<typeof createLocate>;
