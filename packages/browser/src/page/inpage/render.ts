/** Writes an aria tree as YAML within a number of characters; what does not fit is marked and can be asked for. */
import type { AriaNode } from "./describe.ts";
import type { Yaml } from "./yaml.ts";

export interface RenderOptions {
  charsMax: number;
  /** 0: no limit. */
  depthMax: number;
  boxes: boolean;
  /** Nobody asked for it: plain cells share a line, and of a long list only the beginning is shown. */
  terse: boolean;
  /** What each line grows by when it is put into the lines of the document around this one. */
  indentChars: number;
}

export interface RenderedFrame {
  ref: string;
  /** Line after which the frame's own lines belong, and their depth. */
  line: number;
  depth: number;
}

export interface Rendered {
  lines: string[];
  frames: RenderedFrame[];
  truncated: boolean;
  chars: number;
}

interface Piece {
  head: string;
  text: string | null;
  properties: string[];
  children: (Piece | string)[];
  /** For each child the position that `offset` would start from. */
  indexes: number[];
  node: AriaNode;
}

interface Limits {
  children: number;
  depth: number;
  text: number;
  /** Writing stops once the result is past this; it does not fit then anyway. */
  chars: number;
  indent: number;
  terse: boolean;
}

/** How a node is written. */
type Manner = Pick<RenderOptions, "boxes" | "terse">;

export function createRender(refFor: (element: Element) => string, { asKey, asValue }: Yaml) {
  const nameCharsMax = 900;
  /** A cut text keeps at least its beginning, and a cut list at least its first members. */
  const textCharsWhenCut = 300;
  const childrenWhenDeep = 6;
  /** Of a list that nobody asked for and that has more members than this, so many are shown. */
  const membersWhole = 24;
  const membersShown = 10;
  const plainlyClickable = /^(button|link|menuitem|option|tab)$/;
  const urlCharsWhenTerse = 100;

  /** What the lines around a node have said already and need not be repeated in its own. */
  interface Around {
    isPointer: boolean;
    isInert: boolean;
  }

  function headOf(node: AriaNode, around: Around, { boxes, terse }: Manner): string {
    const { states, marks } = node;
    let key = node.role;
    if (node.name && node.name.length <= nameCharsMax) key += ` ${JSON.stringify(node.name)}`;
    const flag = (name: string, value: boolean | string | number | undefined) => {
      if (value === true) key += ` [${name}]`;
      else if (value) key += ` [${name}=${value}]`;
    };
    flag("checked", states.checked);
    flag("disabled", states.disabled);
    flag("expanded", states.expanded);
    flag("active", node.active);
    flag("invalid", states.invalid);
    flag("level", states.level);
    flag("pressed", states.pressed);
    flag("selected", states.selected);
    flag("aria-hidden", node.isAriaHidden);
    flag("editable", marks.editable);
    flag("inert", marks.inert && !around.isInert);
    flag("covered", marks.covered);
    if (node.ref) {
      flag("ref", node.ref);
      flag("clickable", marks.clickable);
      const isPointer = !around.isPointer && node.box.cursor === "pointer";
      if (isPointer && !(terse && plainlyClickable.test(node.role))) key += " [cursor=pointer]";
    }
    if (boxes) {
      const rect = node.element.getBoundingClientRect();
      key += ` [box=${[rect.x, rect.y, rect.width, rect.height].map(Math.round).join(",")}]`;
    }
    return asKey(key);
  }

  /** A cell with nothing to it but its place in the row; those of a grid take the focus all the same. */
  const isBareCell = ({
    role,
    ref,
    box,
    states,
    marks,
    isKept,
    active,
    unseen,
    hint,
    isAriaHidden,
  }: AriaNode) =>
    /^(cell|gridcell|columnheader|rowheader)$/.test(role) &&
    !(marks.clickable || marks.editable || (isKept && role !== "gridcell")) &&
    !(active || unseen || hint || isAriaHidden || (ref && box.cursor === "pointer")) &&
    Object.values(states).every((state) => !state);

  /** Of a cell that holds only text; null for another. */
  function textOfCell(node: AriaNode): string | null {
    const [first, ...rest] = node.children.map((child) => child.node);
    if (!isBareCell(node) || rest.length > 0 || typeof first === "object") return null;
    return [node.name, first].filter(Boolean).join(" ");
  }

  /** A row whose name is the texts of its cells; what else is in them follows without its cell. */
  function folded(row: AriaNode): AriaNode {
    const texts: string[] = [];
    const children: AriaNode["children"] = [];
    for (const child of row.children) {
      const text = typeof child.node === "string" ? child.node : textOfCell(child.node);
      texts.push(text ?? "…");
      if (text !== null || typeof child.node === "string") continue;
      if (isBareCell(child.node) && !child.node.name)
        children.push(...child.node.children.map(({ node }) => ({ index: child.index, node })));
      else children.push(child);
    }
    while (texts.at(-1) === "…" || texts.at(-1) === "") texts.pop();
    const name = texts.join(" | ");
    return row.name || name.length > nameCharsMax ? row : { ...row, name, children };
  }

  /** The options of a closed list, which has nothing else, as one line; null for another. */
  function optionsOf({ children }: AriaNode): string | null {
    const isOption = ({ node }: AriaNode["children"][number]) =>
      typeof node !== "string" && node.role === "option" && !node.ref && node.children.length === 0;
    if (children.length === 0 || !children.every(isOption)) return null;
    const shown = children.slice(0, children.length > membersWhole ? membersShown : membersWhole);
    const words = shown.map(({ node }) => {
      const { name, states } = node as AriaNode;
      return states.selected ? `${name} [selected]` : name;
    });
    const left = children.length - shown.length;
    return [...words, ...(left > 0 ? [`… ${left} more`] : [])].join(" | ");
  }

  /** As it is written where nobody asked for it: without what its name says too, and without empty groups. */
  function tersely(node: AriaNode): AriaNode {
    if (node.role === "row") return folded(node);
    const children = node.children.filter(
      ({ node: child }) =>
        typeof child === "string" || child.role !== "rowgroup" || child.children.length > 0 || child.unseen,
    );
    const [first] = children;
    const isRepeated =
      children.length === 1 && typeof first!.node === "string" && node.name.includes(first!.node);
    const isPlain = /^(generic|link|button|cell|gridcell|listitem)$/.test(node.role);
    return { ...node, children: isRepeated && isPlain ? [] : children };
  }

  function toPiece(given: AriaNode, around: Around, manner: Manner): Piece {
    const options = manner.terse ? optionsOf(given) : null;
    const node = options ? { ...given, children: [] } : manner.terse ? tersely(given) : given;
    const children = node.children.map((child) => child.node);
    const only = children.length === 1 && typeof children[0] === "string" ? children[0] : null;
    const inside: Around = {
      isPointer: around.isPointer || (node.ref !== null && node.box.cursor === "pointer"),
      isInert: around.isInert || node.marks.inert,
    };
    const properties: string[] = [];
    if (node.url !== undefined)
      properties.push(`- /url: ${asValue(manner.terse ? cutText(node.url, urlCharsWhenTerse) : node.url)}`);
    if (node.placeholder !== undefined) properties.push(`- /placeholder: ${asValue(node.placeholder)}`);
    if (node.hint !== undefined) properties.push(`- /hint: ${asValue(node.hint)}`);
    if (options) properties.push(`- /options: ${asValue(options)}`);
    return {
      head: headOf(node, around, manner),
      text: only,
      properties,
      children:
        only === null
          ? children.map((child) => (typeof child === "string" ? child : toPiece(child, inside, manner)))
          : [],
      indexes: node.children.map((child) => child.index),
      node,
    };
  }

  const roleOf = (piece: Piece | string) => (typeof piece === "string" ? null : piece.node.role);

  function cutText(text: string, max: number): string {
    if (text.length <= max) return text;
    return `${text.slice(0, max)}… [+${text.length - max} characters]`;
  }

  function write(pieces: (Piece | string)[], limits: Limits): Rendered {
    const lines: string[] = [];
    const frames: RenderedFrame[] = [];
    let truncated = false;
    let chars = 0;
    const add = (line: string) => {
      lines.push(line);
      chars += limits.indent + line.length + 1;
    };
    const text = (value: string) => {
      if (value.length > limits.text) truncated = true;
      return asValue(cutText(value, limits.text));
    };

    const more = (node: AriaNode, depth: number, count: number, offset: number | null) => {
      truncated = true;
      const target = refFor(node.element);
      const call = JSON.stringify(offset === null ? { target } : { target, offset });
      add(
        `${"  ".repeat(depth)}- /more: ${asValue(`${count} more not shown, see browser_snapshot ${call}`)}`,
      );
    };

    /** Many of a kind, with more to each of them than a line. */
    const isLongList = ({ children }: Piece) =>
      children.length > membersWhole &&
      children.every((child) => typeof child !== "string" && child.node.role === roleOf(children[0]!)) &&
      children.some((child) => typeof child !== "string" && child.children.length > 0);

    const visitChildren = (piece: Piece, depth: number) => {
      const most = limits.terse && isLongList(piece) ? membersShown : limits.children;
      const shown = Math.min(piece.children.length, limits.children, most);
      for (const child of piece.children.slice(0, shown)) visit(child, depth);
      const left = piece.children.length - shown;
      const { unseen } = piece.node;
      if (left > 0) more(piece.node, depth, left + (unseen?.count ?? 0), piece.indexes[shown] ?? null);
      else if (unseen) more(piece.node, depth, unseen.count, unseen.offset);
    };

    const visit = (piece: Piece | string, depth: number) => {
      if (chars > limits.chars) return;
      const indent = "  ".repeat(depth);
      if (typeof piece === "string") {
        add(`${indent}- text: ${text(piece)}`);
        return;
      }
      const { head, properties, children, node } = piece;
      const isFrame = node.role === "iframe" && node.ref !== null;
      const isAtDepth = depth >= limits.depth && children.length > 0;
      const hasMore = children.length > 0 || node.unseen !== undefined;
      if (piece.text !== null && properties.length === 0 && !node.unseen) {
        add(`${indent}- ${head}: ${text(piece.text)}`);
        return;
      }
      if (properties.length === 0 && piece.text === null && !hasMore) {
        add(`${indent}- ${head}`);
        if (isFrame) frames.push({ ref: node.ref!, line: lines.length, depth: depth + 1 });
        return;
      }
      add(`${indent}- ${head}:`);
      for (const property of properties) add(`${indent}  ${cutText(property, Math.max(limits.text, 200))}`);
      if (piece.text !== null) add(`${indent}  - text: ${text(piece.text)}`);
      if (isAtDepth) more(node, depth + 1, children.length + (node.unseen?.count ?? 0), null);
      else visitChildren(piece, depth + 1);
    };
    for (const piece of pieces) visit(piece, 0);
    return { lines, frames, truncated, chars };
  }

  /** The largest value in [low, high] whose result still fits, or null when not even `low` does. */
  function largestFitting(low: number, high: number, attempt: (value: number) => Rendered, charsMax: number) {
    let best: Rendered | null = null;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const rendered = attempt(middle);
      if (rendered.chars <= charsMax) {
        best = rendered;
        low = middle + 1;
      } else high = middle - 1;
    }
    return best;
  }

  function render(top: AriaNode, options: RenderOptions): Rendered {
    const { charsMax, terse, indentChars: indent } = options;
    const chars = charsMax;
    const pieces = top.children.map((child) =>
      typeof child.node === "string"
        ? child.node
        : toPiece(child.node, { isPointer: false, isInert: false }, options),
    );
    const unlimited = 1_000_000_000;
    const depth = options.depthMax > 0 ? options.depthMax : unlimited;
    const whole = write(pieces, { children: unlimited, depth, text: unlimited, chars, indent, terse });
    if (whole.chars <= charsMax) return whole;
    const texts = write(pieces, { children: unlimited, depth, text: textCharsWhenCut, chars, indent, terse });
    if (texts.chars <= charsMax) return texts;
    const byChildren = largestFitting(
      3,
      2_000,
      (children) => write(pieces, { children, depth, text: textCharsWhenCut, chars, indent, terse }),
      charsMax,
    );
    if (byChildren) return byChildren;
    const byDepth = largestFitting(
      1,
      Math.min(depth, 200),
      (level) =>
        write(pieces, {
          children: childrenWhenDeep,
          depth: level,
          text: textCharsWhenCut,
          chars,
          indent,
          terse,
        }),
      charsMax,
    );
    if (byDepth) return byDepth;
    return cutLines(write(pieces, { children: 3, depth: 1, text: 80, chars, indent, terse }), options);
  }

  function cutLines(rendered: Rendered, { charsMax, indentChars }: RenderOptions): Rendered {
    let size = 0;
    const lines = rendered.lines.filter((line) => {
      size += indentChars + line.length + 1;
      return size <= charsMax;
    });
    return {
      lines,
      frames: rendered.frames.filter((frame) => frame.line <= lines.length),
      truncated: true,
      chars: Math.min(size, charsMax),
    };
  }

  return { render };
}

export type Render = ReturnType<typeof createRender>;
