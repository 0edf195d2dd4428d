/** Removes from an aria tree what carries no information: wrappers, repeated text, nameless images. */
import type { Affordances } from "./affordances.ts";
import type { AriaChild, AriaNode } from "./describe.ts";

export interface DistillTools {
  isInteractive: Affordances["isInteractive"];
  /** Told of elements that are left out and may be there to be clicked all the same. */
  noticeSilent: (element: Element) => void;
}

export function createDistiller({ isInteractive, noticeSilent }: DistillTools) {
  /** Roles whose name tells which one it is, so it stays even where the content repeats it. */
  const identifiedByName = new Set(
    (
      "alertdialog dialog banner complementary contentinfo form main navigation region search application document " +
      "figure group grid listbox menu menubar radiogroup tablist tabpanel toolbar tree treegrid table columnheader rowheader"
    ).split(" "),
  );

  const flat = (text: string) =>
    text
      .replace(/[\u200b\u00ad]/g, "")
      .trim()
      .replace(/\s+/g, " ");
  const hasProperties = (node: AriaNode) =>
    node.url !== undefined || node.placeholder !== undefined || node.isAriaHidden || node.marks.editable;
  const isPointer = (node: AriaNode) => node.ref !== null && node.box.cursor === "pointer";
  const onlyText = (node: AriaNode) => {
    const only = node.children.length === 1 ? node.children[0]!.node : null;
    return typeof only === "string" ? only : null;
  };

  function distill(top: AriaNode, depthMax: number): void {
    /** Elements that gave text to a name above them and have not been seen in the output themselves. */
    const awaited = new Set<Element>();
    const ancestors: AriaNode[] = [];

    const startsClickTarget = (node: AriaNode) => isPointer(node) && !ancestors.some(isPointer);

    function mergeText(node: AriaNode): void {
      const merged: AriaChild[] = [];
      let text = "";
      let textIndex = 0;
      const flush = () => {
        const clean = flat(text);
        if (clean) merged.push({ index: textIndex, node: clean });
        text = "";
      };
      for (const child of node.children) {
        if (typeof child.node === "string") {
          if (!text) textIndex = child.index;
          text += child.node;
        } else {
          flush();
          merged.push(child);
        }
      }
      flush();
      node.children = merged;
      // Names keep their no-break spaces, texts do not.
      if (node.children.length === 1 && node.name && node.children[0]!.node === flat(node.name))
        node.children = [];
    }

    function enter(node: AriaNode, depth: number): void {
      if (!node.ref) return;
      for (const source of node.nameSources) if (source !== node.element) awaited.add(source);
      const isBeyond = depthMax > 0 && depth > depthMax;
      const isLeafGeneric =
        node.role === "generic" && node.children.every((child) => typeof child.node === "string");
      if (!isBeyond && !isLeafGeneric) awaited.delete(node.element);
    }

    function dropRepeatedName(node: AriaNode): void {
      if (!node.ref || node.isTarget) return;
      const sources = [...node.nameSources].filter((source) => source !== node.element && seen.has(source));
      if (sources.length === 0) return;
      if (!identifiedByName.has(node.role) && sources.every((source) => !awaited.has(source))) node.name = "";
      else for (const source of sources) awaited.delete(source);
    }

    function inlineText(node: AriaNode): void {
      if (node.role !== "generic" || hasProperties(node) || node.children.length !== 1) return;
      const child = node.children[0]!.node;
      if (typeof child === "string" || child.role !== "generic" || child.name || child.active) return;
      if (hasProperties(child) || child.unseen || child.isKept) return;
      const text = onlyText(child);
      if (text !== null) node.children = [{ index: node.children[0]!.index, node: text }];
    }

    function repeatsParent(node: AriaNode): boolean {
      const parent = ancestors[ancestors.length - 1];
      if (!parent?.name || node.role !== "generic" || node.active || hasProperties(node)) return false;
      const text = node.name ? (node.children.length > 0 ? null : node.name) : onlyText(node);
      if (!text || flat(text) !== flat(parent.name)) return false;
      if (node.ref) awaited.add(node.element);
      return true;
    }

    function isWrapper(node: AriaNode): boolean {
      if (node.role !== "generic" || node.name || node.children.length !== 1 || node.unseen) return false;
      if (node.isTarget || node.marks.editable) return false;
      return node.children.every((child) => typeof child.node !== "string" && child.node.ref);
    }

    /** Nothing is known of it but its place; icons of controls and decoration are like that. */
    function isEmpty(node: AriaNode): boolean {
      if (node.role !== "generic" && node.role !== "img") return false;
      if (node.name || node.children.length > 0 || node.unseen || node.isKept) return false;
      const isInControl = ancestors.some((ancestor) => isInteractive(ancestor.role));
      return isInControl || !(startsClickTarget(node) || node.isPicture);
    }

    function leave(node: AriaNode): "keep" | "remove" | "unwrap" {
      mergeText(node);
      if (isEmpty(node)) {
        if (node.ref) noticeSilent(node.element);
        return "remove";
      }
      dropRepeatedName(node);
      inlineText(node);
      if (!node.isTarget && repeatsParent(node)) return "remove";
      return isWrapper(node) ? "unwrap" : "keep";
    }

    function walk(node: AriaNode, depth: number): void {
      const kept: AriaChild[] = [];
      ancestors.push(node);
      for (const child of node.children) {
        if (typeof child.node === "string") {
          kept.push(child);
          continue;
        }
        enter(child.node, depth + 1);
        walk(child.node, depth + 1);
        const verdict = leave(child.node);
        if (verdict === "keep") kept.push(child);
        else if (verdict === "unwrap") {
          for (const inner of child.node.children) kept.push({ index: child.index, node: inner.node });
        }
      }
      ancestors.pop();
      node.children = kept;
    }

    /** Only elements that have a ref of their own can be awaited. */
    const seen = new Set<Element>();
    const collect = (node: AriaNode) => {
      if (node.ref) seen.add(node.element);
      for (const child of node.children) if (typeof child.node !== "string") collect(child.node);
    };
    collect(top);
    walk(top, -1);
    mergeText(top);
  }

  return { distill };
}

export type Distiller = ReturnType<typeof createDistiller>;
