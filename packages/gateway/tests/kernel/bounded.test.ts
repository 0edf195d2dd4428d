import { expect, test } from "bun:test";
import { BoundedMap } from "../../src/kernel/bounded.ts";

test("a full map drops its oldest entry, however the new one is inserted", () => {
  const inserts: ((map: BoundedMap<number, string>, key: number) => unknown)[] = [
    (map, key) => map.set(key, "v"),
    (map, key) => map.getOrInsert(key, "v"),
    (map, key) => map.getOrInsertComputed(key, () => "v"),
  ];
  for (const insert of inserts) {
    const map = new BoundedMap<number, string>(3);
    for (const key of [1, 2, 3, 2, 4]) insert(map, key);
    expect([...map]).toEqual([
      [2, "v"],
      [3, "v"],
      [4, "v"],
    ]);
  }
});

test("what is known is neither made anew nor replaced", () => {
  const map = new BoundedMap<string, number>().set("a", 1);
  expect(map.getOrInsert("a", 2)).toBe(1);
  expect(map.getOrInsertComputed("a", () => expect.unreachable())).toBe(1);
});
