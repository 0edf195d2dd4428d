/** Hides texts for a picture: they are drawn as dots, and as before afterwards. */
import type { Dom } from "./dom.ts";

export function createMask(dom: Dom) {
  const name = "-webkit-text-security";
  let masked: { style: CSSStyleDeclaration; value: string; priority: string }[] = [];

  function shows(element: Element, values: string[]): boolean {
    const texts =
      element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement
        ? [element.value]
        : [...element.childNodes]
            .filter((node) => node.nodeType === Node.TEXT_NODE)
            .map((node) => node.nodeValue);
    return texts.some((text) => values.some((value) => text?.includes(value)));
  }

  function hide(root: Document | ShadowRoot, values: string[]): void {
    for (const element of root.querySelectorAll("*")) {
      const shadow = dom.shadowOf(element);
      if (shadow) hide(shadow, values);
      const { style } = element as HTMLElement;
      if (!style || !shows(element, values)) continue;
      masked.push({ style, value: style.getPropertyValue(name), priority: style.getPropertyPriority(name) });
      style.setProperty(name, "disc", "important");
    }
  }

  /** Without values everything is shown again. */
  return (values: string[]): void => {
    for (const { style, value, priority } of masked) style.setProperty(name, value, priority);
    masked = [];
    if (values.length > 0) hide(document, values);
  };
}
