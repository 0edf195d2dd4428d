import { expect, test } from "bun:test";
import { hideSecrets, keepSecret } from "../../src/kernel/secrets.ts";

test("a secret is hidden for as long as anyone keeps it, whoever else keeps others", () => {
  const [first, second] = [keepSecret("sk-of-two-backends"), keepSecret("sk-of-two-backends")];
  const others = Array.from({ length: 20_000 }, (_, i) => keepSecret(`another-secret-${i}`));
  const words = "the key sk-of-two-backends is wrong";
  expect(hideSecrets(words)).toBe("the key [redacted] is wrong");
  for (const end of others) end();
  first();
  expect(hideSecrets(words)).toBe("the key [redacted] is wrong");
  second();
  expect(hideSecrets(words)).toBe(words);
});

test("what a node names as its key hides no ordinary word", () => {
  const end = keepSecret("message", 16);
  expect(hideSecrets("a message")).toBe("a message");
  end();
});
