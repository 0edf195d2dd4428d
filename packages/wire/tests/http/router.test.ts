import { expect, test } from "bun:test";
import { Router } from "../../src/http/router.ts";

const router = new Router([
  { method: "GET", path: "/items" },
  { method: "POST", path: "/items" },
  { method: "GET", path: "/items/{id}" },
  { method: "DELETE", path: "/items/{id}/parts/{part}" },
]);

test("exact paths and patterns are found by method", () => {
  expect(router.find("POST", "/items")).toEqual({ route: { method: "POST", path: "/items" }, path: {} });
  expect(router.find("GET", "/items/a%20b")?.path).toEqual({ id: "a b" });
  expect(router.find("DELETE", "/items/1/parts/2")?.path).toEqual({ id: "1", part: "2" });
});

test("a segment that cannot be decoded is passed on as it is", () => {
  expect(router.find("GET", "/items/%zz")?.path).toEqual({ id: "%zz" });
});

test("a pattern matches whole segments only", () => {
  for (const path of ["/items/", "/items/1/", "/items/1/2", "/Items", "/items?x", "//items"])
    expect(router.find("GET", path)).toBeNull();
});

test("the methods of a path tell a wrong method from a path that does not exist", () => {
  expect(router.methodsOf("/items")).toEqual(["GET", "POST"]);
  expect(router.methodsOf("/items/1")).toEqual(["GET"]);
  expect(router.methodsOf("/nowhere")).toEqual([]);
});
