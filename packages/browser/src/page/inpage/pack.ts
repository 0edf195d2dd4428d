/** Turns what a script of the caller returned into JSON, in the page, so that a huge value never travels. */

export interface Packed {
  /** Absent when the value is undefined. */
  json?: string;
  /** Length of the whole JSON where it was cut. */
  cutFrom?: number;
}

/** Runs in the page's own world, outside of the scope of the caller's script. */
export async function packValue(given: unknown, charsMax: number, element?: Element): Promise<Packed> {
  const textCharsMax = 200;
  const value: unknown = await (typeof given === "function" ? given(element) : given);

  function nodeText(node: Node): string {
    if (!(node instanceof Element))
      return `${node.nodeName} ${(node.nodeValue ?? "").slice(0, textCharsMax)}`.trim();
    const attributes = Array.from(
      node.attributes,
      ({ name, value: text }) => ` ${name}="${text.slice(0, textCharsMax)}"`,
    );
    const text = (node.childElementCount === 0 ? (node.textContent ?? "") : "…")
      .trim()
      .slice(0, textCharsMax);
    return `<${node.localName}${attributes.join("")}>${text}</${node.localName}>`;
  }

  /** What JSON would write as {}, or not at all. */
  function readable(this: unknown, key: string, held: unknown): unknown {
    if (typeof held === "bigint" || typeof held === "symbol") return String(held);
    if (typeof held === "function") return key === "" ? `[function ${held.name}]` : undefined;
    if (typeof held !== "object" || held === null) return held;
    if (held instanceof Node) return nodeText(held);
    if (held === globalThis || Object.prototype.toString.call(held) === "[object Window]") return "[window]";
    if (held instanceof Error) return String(held);
    if (held instanceof RegExp) return String(held);
    if (held instanceof Map) return Object.fromEntries(held);
    if (held instanceof Set || held instanceof NodeList || held instanceof HTMLCollection)
      return Array.from(held as Iterable<unknown>);
    return held;
  }

  // Without methods of arrays, which pages are known to change.
  const path: unknown[] = [];
  let depth = 0;
  function withoutCycles(this: unknown, key: string, held: unknown): unknown {
    while (depth > 0 && path[depth - 1] !== this) depth--;
    const shown = readable.call(this, key, held);
    if (typeof shown !== "object" || shown === null) return shown;
    for (let i = 0; i < depth; i++) if (path[i] === shown) return "[circular]";
    path[depth++] = shown;
    return shown;
  }

  const json = value === undefined ? undefined : JSON.stringify(value, withoutCycles, 2);
  if (json === undefined) return {};
  return json.length > charsMax ? { json: json.slice(0, charsMax), cutFrom: json.length } : { json };
}
