import { expect, test } from "bun:test";
import { STATUS_CODES } from "node:http";
import { STATUS_TEXTS } from "../../src/server/status-texts.ts";

test("the texts of status codes are those of node:http", () => {
  expect(STATUS_TEXTS).toEqual({ ...STATUS_CODES } as Record<number, string>);
});
