import { expect, test } from "bun:test";
import { toCsv } from "../src/lib/download.ts";
import { ago, compact, money, periodText, seconds } from "../src/lib/format.ts";
import { parseMarkdown } from "../src/lib/markdown.ts";
import { snippet } from "../src/lib/snippets.ts";

test("figures are short, and unknown is never zero", () => {
  expect([money(12.345), money(0.0023), money(0), money(null)]).toEqual([
    "$12.35",
    "$0.0023",
    "$0.00",
    "unknown",
  ]);
  expect([compact(950), compact(12_345), compact(4_100_000), compact(undefined)]).toEqual([
    "950",
    "12.3k",
    "4.1M",
    "unknown",
  ]);
  expect([seconds(88), seconds(1_500), seconds(3_700_000)]).toEqual(["88 ms", "1.5 s", "1 h 1 min"]);
  expect([ago(1_000, 62_000), ago(90_000, 60_000), ago(null)]).toEqual(["1 min ago", "in 30 s", "never"]);
  expect(ago(7 * 86_400_000, 5_000)).toBe("in 7 d");
});

test("a period names the days that are not plain from today", () => {
  const at = (day: number, hour: number) => new Date(2026, 9, day, hour).toISOString();
  const now = Date.parse(at(20, 23));
  // Some versions of the formatter put a narrow blank before AM and PM.
  const text = (since: string, until: string) => periodText(since, until, now).replaceAll("\u202f", " ");
  expect(text(at(20, 9), at(20, 10))).toBe("9:00 AM to 10:00 AM");
  expect(text(at(19, 9), at(19, 10))).toBe("Oct 19 9:00 AM to 10:00 AM");
  expect(text(at(19, 9), at(20, 10))).toBe("Oct 19 9:00 AM to Oct 20 10:00 AM");
});

test("CSV quotes what it must and disarms formulas", () => {
  const rows = [{ a: 'say "hi", all', b: "=1+1", c: -5, d: null }];
  expect(toCsv(["a", "b", "c", "d"], rows)).toBe('a,b,c,d\r\n"say ""hi"", all",\'=1+1,-5,\r\n');
});

test("CSV: no cell begins with a formula, wherever a spreadsheet cuts the line", () => {
  const starts = ["=1+1", "+1", "-1", "@SUM(1)", "\uff1d1+1", " =1+1", "\t=1+1", "\r\n=1+1"];
  const cells = starts.flatMap((text) => [text, `x;${text}`, `x\t${text}`, `x\n${text}`, `"x";${text}`]);
  const csv = toCsv(
    ["a", "b"],
    cells.map((text) => ({ a: "x", b: text })),
  );
  for (const separator of [/[;\r\n]/, /[\t\r\n]/, /[,\r\n]/])
    for (const cell of csv.split(separator)) expect(cell).not.toMatch(/^["\s]*[=+\-@\uff1d]/);
});

test("Markdown becomes blocks, and nothing in it can run", () => {
  const blocks = parseMarkdown(
    "# Title\n\nSome **bold** `code` and [a link](https://example.org).\n\n- one\n- two\n  - inner\n\n```sh\necho hi\n```\n\n| A | B |\n|---|---|\n| 1 | x \\| y |\n\n<!-- a remark -->\n<script>alert(1)</script>",
  );
  expect(blocks.map(({ type }) => type).filter((type) => type !== "space")).toEqual([
    "heading",
    "paragraph",
    "list",
    "code",
    "table",
    "html",
    "paragraph",
  ]);
  const find = (type: string) => blocks.find((block) => block.type === type);
  expect(find("list")).toMatchObject({
    ordered: false,
    items: [{ tokens: [{ text: "one" }] }, { tokens: [{ text: "two" }, { type: "list" }] }],
  });
  expect(find("code")).toMatchObject({ lang: "sh", text: "echo hi" });
  expect(find("table")).toMatchObject({ rows: [[{ text: "1" }, { text: "x | y" }]] });
  expect(find("html")).toMatchObject({ text: "<!-- a remark -->\n" });
  expect(blocks.at(-1)).toMatchObject({
    type: "paragraph",
    tokens: [{ type: "text", text: "<script>alert(1)</script>" }],
  });
});

test("images are known apart from links", () => {
  expect(parseMarkdown("![Usage](images/usage.png) and [more](more.md)")).toMatchObject([
    {
      type: "paragraph",
      tokens: [
        { type: "image", href: "images/usage.png", text: "Usage" },
        { type: "text", text: " and " },
        { type: "link", href: "more.md", tokens: [{ type: "text", text: "more" }] },
      ],
    },
  ]);
});

test("every prefix of an answer parses, because answers arrive in pieces", () => {
  const text = "Look:\n\n```js\nconst a = `b`;\n```\n\n1. **first\n2. [x](y\n\n| a |\n|--";
  for (let end = 0; end <= text.length; end++)
    expect(Array.isArray(parseMarkdown(text.slice(0, end)))).toBe(true);
});

test("programs say the same in each language, with quotes that hold", () => {
  const request = { model: "m", messages: [{ role: "user", content: "it's" }], stream: true };
  const options = { origin: "http://gateway", key: "k", request, ref: "r" };
  const printed = Bun.spawnSync(["bash", "-c", snippet("curl", options).replace("curl ", "printf '%s\\n' ")]);
  expect(printed.stdout.toString()).toContain(`"content": "it's"`);
  expect(snippet("js", options)).toContain('"x-service-ref": "r"');
  expect(snippet("python", options)).toContain("stream=True");
});

test("what only this service knows goes into Python's extra body, which refuses unknown arguments", () => {
  const request = { model: "m", messages: [], provider: "demo", memory: false };
  const python = snippet("python", { origin: "http://x", key: "k", request });
  expect(python).toContain('    extra_body={"provider": "demo", "memory": False},');
  expect(python).not.toContain("provider=");
});
