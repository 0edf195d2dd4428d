import { createElement, memo, type ReactNode } from "react";
import { type MathElement, parseMath } from "../lib/math.ts";

const draw = (element: MathElement, extra: object = {}): ReactNode =>
  typeof element === "string"
    ? element
    : createElement(
        element.tag,
        { ...element.attributes, ...extra },
        ...element.children.map((child) => draw(child)),
      );

/** A formula, drawn by the browser; its source where it cannot be read. */
export default memo(function Formula({ tex, block }: { tex: string; block: boolean }) {
  const parsed = parseMath(tex, block);
  if (!parsed) return <code>{tex}</code>;
  return draw(parsed, { "aria-label": tex, tabIndex: block ? 0 : undefined });
});
