import katex from "katex";

/** An element of MathML, which browsers draw themselves. */
export type MathElement =
  | string
  | { tag: string; attributes: Record<string, string>; children: MathElement[] };

interface KatexNode {
  type?: string;
  attributes?: Record<string, string>;
  children?: KatexNode[];
  toText(): string;
}

const LENGTH_MAX = 4_000;
const { __renderToDomTree: renderToDomTree } = katex as unknown as {
  __renderToDomTree(tex: string, options: object): KatexNode;
};

/** Letters that are characters of their own: where A and a are, and those that Unicode had before. Browsers map none. */
const ALPHABETS: Readonly<Record<string, readonly [upper: number, lower: number, others: string]>> = {
  "double-struck": [0x1d538, 0x1d552, "CℂHℍNℕPℙQℚRℝZℤ"],
  script: [0x1d49c, 0x1d4b6, "BℬEℰFℱHℋIℐLℒMℳRℛeℯgℊoℴ"],
  fraktur: [0x1d504, 0x1d51e, "CℭHℌIℑRℜZℨ"],
};

function inAlphabet(text: string, variant = ""): string {
  const [upper, lower, others] = ALPHABETS[variant] ?? [];
  if (!upper || !lower || !others) return text;
  return text.replace(/[A-Za-z]/g, (letter) => {
    const at = others.indexOf(letter);
    if (at >= 0) return others[at + 1]!;
    const code = letter.charCodeAt(0);
    return String.fromCodePoint(code < 97 ? upper + code - 65 : lower + code - 97);
  });
}

function toElement(node: KatexNode, variant?: string): MathElement {
  if (!node.type || !node.children) return inAlphabet(node.toText(), variant);
  // The page's policy allows no style in an attribute; what katex puts there is decoration.
  const { style: _, ...attributes } = node.attributes ?? {};
  const children = node.children.map((child) => toElement(child, attributes.mathvariant));
  return { tag: node.type, attributes, children };
}

/** TeX as models write it. Null for what is not understood: then the source is shown as it is. */
export function parseMath(tex: string, displayMode = false): MathElement | null {
  if (tex.length > LENGTH_MAX) return null;
  try {
    const tree = renderToDomTree(tex, { displayMode, output: "mathml", strict: "ignore", maxExpand: 500 });
    return toElement(tree.children![0]!);
  } catch (error) {
    if (error instanceof katex.ParseError || error instanceof RangeError) return null;
    throw error;
  }
}
