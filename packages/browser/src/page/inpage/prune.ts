/** Takes everything out of an aria tree but the branches that hold a text. */
import type { AriaNode } from "./describe.ts";

export function createPrune() {
  /** How much more of a page is looked at for a search than would be shown. */
  const widening = 20;

  function keepMatching(top: AriaNode, text: string): void {
    const wanted = text.trim().toLowerCase();
    const has = (value: string | undefined) => value?.toLowerCase().includes(wanted) === true;
    const isMatch = (node: AriaNode) =>
      has(node.name) ||
      has(node.placeholder) ||
      node.children.some((child) => typeof child.node === "string" && has(child.node));

    const holdsMatch = (node: AriaNode): boolean =>
      isMatch(node) ||
      node.children.some((child) => typeof child.node !== "string" && holdsMatch(child.node));

    function keep(node: AriaNode): boolean {
      // What belongs to a match is shown whole; and of a row, what can be done with it.
      if (isMatch(node) || (node.role === "row" && holdsMatch(node))) return true;
      // What a frame holds is not known here; one without a match is taken out later.
      if (node.role === "iframe") return node.ref !== null;
      node.children = node.children.filter((child) => typeof child.node !== "string" && keep(child.node));
      node.unseen = undefined;
      return node.children.length > 0;
    }

    top.children = top.children.filter((child) =>
      typeof child.node === "string" ? has(child.node) : keep(child.node),
    );
    top.unseen = undefined;
  }

  return { keepMatching, widening };
}
