import { createElement } from "react";
import { type MathNode, parseMath } from "../lib/math.ts";

const Part = ({ part: { tag, attributes, children } }: { part: MathNode }) => {
  const { class: className, ...rest } = attributes ?? {};
  return createElement(
    tag,
    { ...rest, className },
    ...children.map((child, i) =>
      // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
      typeof child === "string" ? child : <Part key={i} part={child} />,
    ),
  );
};

/** A formula, drawn by the browser itself; its source where it cannot be read. */
export function Formula({ tex, block = false }: { tex: string; block?: boolean }) {
  const parts = parseMath(tex);
  if (!parts) return <code>{tex}</code>;
  return createElement(
    "math",
    { display: block ? "block" : undefined, "aria-label": tex, tabIndex: block ? 0 : undefined },
    ...parts.map((part, i) => (
      // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
      <Part key={i} part={part} />
    )),
  );
}
