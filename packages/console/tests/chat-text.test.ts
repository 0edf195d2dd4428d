import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import { splitAttachments, withAttachments } from "../src/lib/attachments.ts";
import { countParts, moneyFormat, moneyParts } from "../src/lib/format.ts";
import { highlight } from "../src/lib/highlight.ts";
import { type Block, type Inline, parseMarkdown } from "../src/lib/markdown.ts";
import { type MathNode, parseMath } from "../src/lib/math.ts";

test("amounts that stand together have the same precision, and parts add up to their sum", () => {
  const format = moneyFormat([1.5, 0.0023, null, 0]);
  expect([1.5, 0.0023, 0].map(format)).toEqual(["$1.5000", "$0.0023", "$0.0000"]);
  expect(moneyParts([1, 1, 1].map((third) => third / 3))).toEqual({
    parts: ["$0.34", "$0.33", "$0.33"],
    total: "$1.00",
  });
  expect(moneyParts([])).toEqual({ parts: [], total: "$0.00" });
  expect(countParts([999_950, 51])).toEqual({ parts: ["999,950", "51"], total: "1,000,001" });
  for (let round = 0; round < 200; round++) {
    const amounts = Array.from({ length: 1 + (round % 7) }, () => Math.random() ** 4);
    const { parts, total } = moneyParts(amounts);
    const units = (text: string) => Math.round(Number(text.replace(/[$,]/g, "")) * 1e6);
    expect(parts.reduce((sum, part) => sum + units(part), 0)).toBe(units(total));
  }
});

const coloured = (text: string, language: string) =>
  highlight(text, language)
    .filter(({ kind }) => kind !== "plain")
    .map(({ kind, text: words }) => `${kind} ${words}`);

test("code is coloured by its language, and nothing of it is lost", () => {
  expect(coloured('const a = "x"; // 1\nf(0x1F)', "ts")).toEqual([
    "keyword const",
    'string "x"',
    "comment // 1",
    "name f",
    "number 0x1F",
  ]);
  expect(coloured("select 1 FROM t -- all", "sql")).toEqual([
    "keyword select",
    "number 1",
    "keyword FROM",
    "comment -- all",
  ]);
  expect(coloured('{"a": [true, "b"]}', "json")).toEqual(['name "a"', "keyword true", 'string "b"']);
  expect(coloured("echo $HOME # hi", "bash")).toEqual(["keyword echo", "name $HOME", "comment # hi"]);
  for (const [text, language] of [
    ["'unclosed \"", "python"],
    ["<a href='x'>", "html"],
    ["/* never ends", "css"],
    ["anything", "no-such-language"],
    ["", "js"],
    ["x".repeat(100_000), "js"],
  ] as const)
    expect(
      highlight(text, language)
        .map((token) => token.text)
        .join(""),
    ).toBe(text);
});

const outline = (parts: readonly (MathNode | string)[]): string =>
  parts.map((part) => (typeof part === "string" ? part : `${part.tag}(${outline(part.children)})`)).join(" ");

test("TeX becomes MathML; what is not understood stays as it was written", () => {
  expect(outline(parseMath("\\frac{a}{2}")!)).toBe("mfrac(mi(a) mn(2))");
  expect(outline(parseMath("x_i^2")!)).toBe("msubsup(mi(x) mi(i) mn(2))");
  expect(outline(parseMath("\\sum_{i=1}^n i")!)).toBe(
    "munderover(mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n)) mi(i)",
  );
  expect(outline(parseMath("\\left( \\sqrt[3]{x} \\right]")!)).toBe("mrow(mo(() mroot(mi(x) mn(3)) mo(]))");
  expect(outline(parseMath("\\mathbb{R}f'")!)).toBe("mi(ℝ) msup(mi(f) mo(′))");
  expect(outline(parseMath("\\begin{cases} a & b \\\\ c & d \\end{cases}")!)).toBe(
    "mrow(mo({) mtable(mtr(mtd(mi(a)) mtd(mi(b))) mtr(mtd(mi(c)) mtd(mi(d)))))",
  );
  expect(outline(parseMath("\\text{for all } x")!)).toContain("mtext(for");
  for (const tex of [
    "\\frac{a",
    "\\unknown x",
    "\\left(",
    "\\begin{cases} a",
    "{".repeat(100),
    "x".repeat(5_000),
  ])
    expect([tex.slice(0, 20), parseMath(tex)]).toEqual([tex.slice(0, 20), null]);
  for (const odd of ["", "^", "_", "}", "&", "^^^", "x^", "'"]) expect(parseMath(odd)).not.toBeNull();
});

test("formulas stand in the text, and dollars stay dollars", () => {
  expect(parseMarkdown("a $x^2$ for $5 and $10, \\(y\\)")).toEqual([
    {
      kind: "paragraph",
      children: [
        { kind: "text", text: "a " },
        { kind: "math", text: "x^2" },
        { kind: "text", text: " for $5 and $10, " },
        { kind: "math", text: "y" },
      ],
    },
  ]);
  expect(parseMarkdown("before\n$$\na\nb\n$$\nafter").map(({ kind }) => kind)).toEqual([
    "paragraph",
    "math",
    "paragraph",
  ]);
  expect(parseMarkdown("\\[ x \\]")).toEqual([{ kind: "math", text: "x" }]);
  expect(parseMarkdown("$$ still being written")).toEqual([{ kind: "math", text: " still being written" }]);
  expect(parseMarkdown("3. three\n4. four")).toMatchObject([{ kind: "list", ordered: true, start: 3 }]);
});

test("no page of the documentation is mistaken for a formula", async () => {
  const root = join(import.meta.dir, "../../..");
  const inside = (parts: readonly (Block | Inline)[]): string[] =>
    parts.flatMap((part) =>
      part.kind === "math"
        ? [part.text]
        : "children" in part
          ? inside(part.children)
          : "items" in part
            ? part.items.flatMap(inside)
            : "rows" in part
              ? [part.head, ...part.rows].flatMap((row) => row.flatMap(inside))
              : "blocks" in part
                ? inside(part.blocks)
                : [],
    );
  for await (const path of new Glob("docs/**/*.md").scan(root))
    expect([path, inside(parseMarkdown(await Bun.file(join(root, path)).text()))]).toEqual([path, []]);
});

test("attached files travel in the message and come out of it again", () => {
  const files = [
    { name: "a.md", text: "# Title\n\n~~~\nx\n~~~" },
    { name: "b.csv", text: "1,2\n" },
  ];
  expect(splitAttachments(withAttachments("look", files))).toEqual({ text: "look", files });
  expect(splitAttachments("no files: ~~~~~~")).toEqual({ text: "no files: ~~~~~~", files: [] });
});
