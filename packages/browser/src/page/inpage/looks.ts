/** A look at the page: its whole aria tree, in a form that two looks can be compared in. */
import type { AriaNode } from "./describe.ts";
import type { Distiller } from "./distill.ts";
import type { Tree } from "./tree.ts";

/** One node of a look. */
export interface Part {
  /** Null for the page itself. */
  element: Element | null;
  node: AriaNode;
  /** Everything that its own line shows. */
  own: string;
  parent: Part | null;
  parts: Part[];
}

export interface Look {
  top: Part;
  byElement: Map<Element | null, Part>;
  charsMax: number;
  /** The page is too large to be looked at whole. */
  isPartial: boolean;
  /** Of a page that is too large, what its fields hold: no mutation tells of that. */
  values: Map<Element, string>;
  /** By which the page may show what no text tells. */
  classes: Map<Element, string>;
}

export function createLooks({ tree, distiller }: { tree: Tree; distiller: Distiller }) {
  const shortestLine = 28;
  const fieldsMax = 5_000;
  const classesMax = 1_000;
  const classCharsMax = 100;

  const textsOf = (node: AriaNode) => node.children.filter((child) => typeof child.node === "string");

  /**
   * What a line shows, but for focus and place; and but for what lies over it, because a dialog that opens lies over
   * the whole page.
   */
  function ownOf(node: AriaNode): string {
    const { role, name, states, isAriaHidden, url, placeholder, hint } = node;
    const texts = textsOf(node).map((child) => child.node);
    return JSON.stringify([role, name, states, isAriaHidden, url, placeholder, hint, texts]);
  }

  function lookAt(top: AriaNode, charsMax: number): Look {
    const byElement = new Map<Element | null, Part>();
    let isPartial = false;
    const add = (node: AriaNode, element: Element | null, parent: Part | null): Part => {
      const part: Part = { element, node, own: ownOf(node), parent, parts: [] };
      if (node.unseen) isPartial = true;
      byElement.set(element, part);
      for (const { node: child } of node.children)
        if (typeof child !== "string") part.parts.push(add(child, child.element, part));
      return part;
    };
    const all = add(top, null, null);
    const values = isPartial ? valuesOfFields() : new Map<Element, string>();
    return { top: all, byElement, charsMax, isPartial, values, classes: classesNow() };
  }

  function classesNow(): Map<Element, string> {
    const elements = document.body?.getElementsByTagName("*") ?? [];
    const classes = new Map<Element, string>();
    // A form with a control called getAttribute answers with that control.
    const read = Element.prototype.getAttribute;
    for (let i = 0; i < elements.length && i < classesMax; i++)
      classes.set(elements[i]!, read.call(elements[i]!, "class")?.slice(0, classCharsMax) ?? "");
    return classes;
  }

  function valuesOfFields(): Map<Element, string> {
    const fields = document.querySelectorAll<HTMLInputElement>("input, textarea, select");
    const values = new Map<Element, string>();
    for (let i = 0; i < fields.length && i < fieldsMax; i++)
      values.set(fields[i]!, `${fields[i]!.value} ${fields[i]!.checked}`);
    return values;
  }

  function walk(root: Element, charsMax: number): AriaNode {
    const childrenMax = Math.ceil(charsMax / shortestLine);
    const top = tree.build(root, {
      offset: 0,
      charsMax,
      childrenMax,
      isTarget: false,
      looks: false,
      ways: null,
    });
    distiller.distill(top, 0);
    return top;
  }

  const take = (root: Element, charsMax: number): Look => lookAt(walk(root, charsMax), charsMax);

  /** Its own name and texts. */
  const wordsOf = ({ node }: Part) => [node.name, ...textsOf(node).map((child) => child.node as string)];

  /** All names and texts below it, one after the other. */
  function textOf(part: Part): string {
    const words = wordsOf(part);
    for (const each of part.parts) words.push(textOf(each));
    return words.join(" ").replace(/\s+/g, " ").trim();
  }

  /** Whether its own line tells something; a plain wrapper comes and goes with the number of its children. */
  const says = (part: Part) =>
    part.element !== null &&
    (part.node.role !== "generic" || part.node.isKept || wordsOf(part).some((word) => word !== ""));

  return { lookAt, walk, take, textsOf, textOf, wordsOf, says };
}

export type Looks = ReturnType<typeof createLooks>;
