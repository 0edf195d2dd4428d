/** An element in a few words, as messages name it: <button id="send">Send</button>. */
import type { Dom } from "./dom.ts";

export function createBrief(dom: Dom) {
  const textCharsMax = 40;
  const attributeCharsMax = 60;
  const nodesMax = 50;

  /** The beginning of the text; the text of a whole page is never put together for it. */
  function beginningOf(element: Element): string {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let text = "";
    for (let i = 0; i < nodesMax && text.length < textCharsMax; i++) {
      const node = walker.nextNode() as Text | null;
      if (!node) break;
      text = (text + node.data.slice(0, 1_000)).replace(/\s+/g, " ").trimStart();
    }
    return text.trim().slice(0, textCharsMax);
  }

  return function brief(element: Element): string {
    const tag = dom.tagOf(element).toLowerCase();
    const attributes = ["id", "name", "class"].map((name) => {
      // A form with a control called getAttribute answers with that control.
      const value = Element.prototype.getAttribute.call(element, name);
      const shown = value?.slice(0, attributeCharsMax).replace(/\s+/g, " ");
      return shown ? ` ${name}="${shown}"` : "";
    });
    return `<${tag}${attributes.join("")}>${beginningOf(element)}</${tag}>`;
  };
}

export type Brief = ReturnType<typeof createBrief>;
