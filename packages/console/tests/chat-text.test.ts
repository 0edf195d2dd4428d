import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import { Marked } from "marked";
import { splitAttachments, withAttachments } from "../src/lib/attachments.ts";
import { countParts, moneyFormat, moneyParts, sumsFormat } from "../src/lib/format.ts";
import { highlight } from "../src/lib/highlight.ts";
import { parseMarkdown, sectionsOf } from "../src/lib/markdown.ts";
import { type MathElement, parseMath } from "../src/lib/math.ts";

test("amounts that stand together have the same precision, and parts add up to their sum", () => {
  const format = moneyFormat([1.5, 0.0023, null, 0]);
  expect([1.5, 0.0023, 0].map(format)).toEqual(["$1.5000", "$0.0023", "$0.0000"]);
  expect([3.278249, 0.000022, 0].map(sumsFormat([3.278249, 0.000022]))).toEqual(["$3.28", "<$0.01", "$0.00"]);
  expect([0.12, 0.000022].map(sumsFormat([0.12, 0.000022]))).toEqual(["$0.120000", "$0.000022"]);
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
    .filter(({ kind }) => kind !== null)
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

const outline = (element: MathElement): string =>
  typeof element === "string"
    ? element
    : `${element.tag}(${element.children.map((child) => outline(child)).join(" ")})`;

test("TeX becomes MathML; what is not understood stays as it was written", () => {
  for (const [tex, mathml] of [
    ["\\frac{a}{2}", "mfrac(mi(a) mn(2))"],
    ["x_i^2", "msubsup(mi(x) mi(i) mn(2))"],
    ["\\sum_{i=1}^n i", "munderover(mo(∑) mrow(mi(i) mo(=) mn(1)) mi(n))"],
    ["\\sqrt[3]{x}", "mroot(mi(x) mn(3))"],
    ["\\mathbb{RK}\\mathcal{e}", "mrow(mi(ℝ) mi(𝕂)) mi(ℯ)"],
    ["\\text{for all } x", "mtext(f o r"],
  ] as const)
    expect(outline(parseMath(tex, true)!)).toContain(mathml);
  for (const tex of [
    "\\frac{a",
    "\\unknown x",
    "\\left(",
    "\\begin{cases} a",
    "{".repeat(4_000),
    "x".repeat(5_000),
  ])
    expect([tex.slice(0, 20), parseMath(tex)]).toEqual([tex.slice(0, 20), null]);
});

const namesIn = (element: MathElement): { tags: string[]; attributes: string[] } => {
  if (typeof element === "string") return { tags: [], attributes: [] };
  const inside = element.children.map(namesIn);
  return {
    tags: [element.tag, ...inside.flatMap(({ tags }) => tags)],
    attributes: [...Object.keys(element.attributes), ...inside.flatMap(({ attributes }) => attributes)],
  };
};

test("a formula cannot run anything, link anywhere, or grow without end", () => {
  for (const tex of [
    "\\href{javascript:alert(1)}{x}",
    "\\url{javascript:alert(1)}",
    "\\includegraphics{https://example.org/x.png}",
    "\\htmlStyle{background: url(https://example.org)}{x}",
    "\\htmlData{x=y}{z}",
    "\\fcolorbox{red}{blue}{x}",
    "\\text{<script>alert(1)</script>}",
  ]) {
    const { tags, attributes } = namesIn(parseMath(tex)!);
    expect([tex, tags.filter((tag) => !/^(m[a-z]+|semantics|annotation)$/.test(tag))]).toEqual([tex, []]);
    expect([tex, attributes.filter((name) => /^(on.*|style|href|src|data-.*)$/.test(name))]).toEqual([
      tex,
      [],
    ]);
  }
  expect(parseMath("\\def\\a{\\b\\b}\\def\\b{\\c\\c}\\def\\c{\\a\\a}\\a")).toBeNull();
});

const typesOf = (text: string): string[] =>
  parseMarkdown(text)
    .map(({ type }) => type)
    .filter((type) => type !== "space");

test("formulas stand in the text, and dollars stay dollars", () => {
  expect(parseMarkdown("a $x^2$ for $5 and $10, \\(y\\)")).toMatchObject([
    {
      type: "paragraph",
      tokens: [
        { type: "text", text: "a " },
        { type: "math", text: "x^2" },
        { type: "text", text: " for $5 and $10, " },
        { type: "math", text: "y" },
      ],
    },
  ]);
  expect(typesOf("before\n$$\na\nb\n$$\nafter")).toEqual(["paragraph", "math", "paragraph"]);
  expect(typesOf("before\n\n$$\na\n\nb\n$$\n\nafter")).toEqual(["paragraph", "math", "paragraph"]);
  expect(parseMarkdown("\\[ x \\]")).toMatchObject([{ type: "math", text: "x", block: true }]);
  expect(parseMarkdown("$$ still being written")).toMatchObject([
    { type: "math", text: "still being written" },
  ]);
  expect(parseMarkdown("3. three\n4. four")).toMatchObject([{ type: "list", ordered: true, start: 3 }]);
});

const documents = async () => {
  const root = join(import.meta.dir, "../../..");
  const paths = await Array.fromAsync(new Glob("docs/**/*.md").scan(root));
  return Promise.all(paths.map(async (path) => ({ path, text: await Bun.file(join(root, path)).text() })));
};

test("no page of the documentation is mistaken for a formula", async () => {
  for (const { path, text } of await documents())
    expect([path, JSON.stringify(parseMarkdown(text)).includes('"type":"math"')]).toEqual([path, false]);
});

test("the documentation's sections are the whole text, and each is formatted", async () => {
  for (const { path, text } of await documents()) {
    expect([path, sectionsOf(text).join("") === text]).toEqual([path, true]);
    const whole = new Marked().lexer(text).map(({ type }) => type);
    const expected: string[] = whole.filter((type) => type !== "space");
    expect([path, typesOf(text)]).toEqual([path, expected]);
  }
});

/** The most that anything in a text is nested. */
const depthOf = (value: unknown): number =>
  typeof value !== "object" || value === null
    ? 0
    : 1 + Math.max(0, ...Object.values(value).map((inner) => depthOf(inner)));

test("hostile Markdown ends soon, and is not nested without end", () => {
  const LENGTH = 60_000;
  const wide = `${"|a".repeat(5_000)}|\n${"|-".repeat(5_000)}|\n${"|x|\n".repeat(1_000)}`;
  const pieces = [
    "> ",
    "- ",
    "1. ",
    "*a ",
    "_a_",
    "**a *b ",
    "[",
    "[a](",
    "![",
    "`a``b",
    "$a ",
    "$$",
    "\\( ",
    "\\[ \n",
  ];
  const more = [
    "<",
    "<a ",
    "<!--",
    "~~a ",
    "|",
    "> a\nb\n",
    "```\n",
    "http://a ",
    "a@b.",
    "&amp;",
    "\\",
    "line\n",
  ];
  for (const text of [wide, ...[...pieces, ...more].map((piece) => piece.repeat(LENGTH / piece.length))]) {
    const from = performance.now();
    const tokens = parseMarkdown(text);
    // Without bounds it takes minutes; a slow machine is not that slow.
    expect([text.slice(0, 10), performance.now() - from < 5_000]).toEqual([text.slice(0, 10), true]);
    expect(depthOf(tokens)).toBeLessThan(150);
  }
});

test("a picture inside an answer is drawn however large it is", () => {
  const data = `data:image/png;base64,${"A".repeat(1_000_000)}`;
  expect(parseMarkdown(`Look: ![a dot](${data}) there`)).toMatchObject([
    { tokens: [{ text: "Look: " }, { type: "image", href: data, text: "a dot" }, { text: " there" }] },
  ]);
});

test("attached files travel in the message and come out of it again", () => {
  const files = [
    { name: "a.md", text: "# Title\n\n~~~\nx\n~~~" },
    { name: "b.csv", text: "1,2\n" },
  ];
  expect(splitAttachments(withAttachments("look", files))).toEqual({ text: "look", files });
  expect(splitAttachments("no files: ~~~~~~")).toEqual({ text: "no files: ~~~~~~", files: [] });
});
