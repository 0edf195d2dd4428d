import { expect, test } from "bun:test";
import { factsOf, normalised, queryTerms, statementsOf } from "../src/extract.ts";

test("statements are kept word for word; questions, code and scraps are not", () => {
  const text = `My sister Ana lives in Porto. Do you know it? OK.
I pay 3.50 for coffee!
\`\`\`js
const secret = "this is code, not a statement.";
\`\`\`
Remember that I am allergic to nuts`;
  expect(statementsOf(text)).toEqual([
    "My sister Ana lives in Porto.",
    "I pay 3.50 for coffee!",
    "Remember that I am allergic to nuts",
  ]);
  expect(statementsOf("我住在上海。你呢？私は猫が好きです。")).toEqual([
    "我住在上海。",
    "私は猫が好きです。",
  ]);
  expect(statementsOf("x".repeat(501))).toEqual([]);
});

test("greetings and what is asked for now are not kept, but what people say of themselves is", () => {
  const passing =
    "Hello, demo. Now without slicing, please. Show me a function that reverses a list. Then explain it.";
  expect(statementsOf(passing)).toEqual([]);
  const told = ["Hello, I am the new intern.", "Write to my address in Porto.", "Always answer in French."];
  expect(statementsOf(told.join(" "))).toEqual(told);
});

test("only what the user said is a fact, and each fact once", () => {
  expect(
    factsOf([
      { role: "system", content: "You are a helpful assistant." },
      { role: "user", content: "I like green tea. i like  green tea!" },
      { role: "assistant", content: "I will remember that you like it." },
    ]),
  ).toEqual(["i like green tea!"]);
  const many = Array.from({ length: 40 }, (_, i) => `I own the number ${i}.`).join(" ");
  expect(factsOf([{ role: "user", content: many }])).toHaveLength(20);
  expect(normalised("  I LIKE tea!! ")).toBe("i like tea");
});

test("search terms leave out common words, unless there are only those, and pair CJK characters", () => {
  expect(queryTerms("What is the name of my sister?")).toEqual(["name", "sister"]);
  expect(queryTerms("who are you")).toEqual(["who", "are", "you"]);
  expect(queryTerms("上海 的 weather")).toEqual(["上 海", "的", "weather"]);
  expect(queryTerms('"); DROP TABLE facts; -- NEAR(a b)')).toEqual(["drop", "table", "facts", "near", "b"]);
  // A letter with more marks than any has: nobody waits until a million of them are in order.
  expect(queryTerms(`sister${"\u0315\u0300".repeat(500_000)}s name`)).toEqual(["sister", "s", "name"]);
  expect(queryTerms("?!")).toEqual([]);
});
