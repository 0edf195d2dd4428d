import { expect, test } from "bun:test";
import { mapProblems } from "../lib/map.ts";

const map = (lines: string) => `# Title\n\n\`\`\`\n${lines}\n\`\`\`\n`;
const exists = new Set([
  "packages/wire/",
  "packages/wire/src/",
  "packages/wire/src/server/",
  "packages/gateway/",
  "packages/gateway/src/",
  "packages/gateway/src/main.ts",
  "packages/gateway/src/rooms/",
  "packages/gateway/src/rooms/keys/",
  "packages/gateway/src/rooms/keys/deep/",
  "packages/gateway/src/backends/",
  "packages/gateway/src/backends/engine/",
  "tests/e2e/",
]);
const WHOLE = `packages/
  wire/            sockets
    server/        listens
  gateway/src/     the service
    main.ts        the command
    rooms/
      keys/        who may
    backends/      one folder per kind
tests/
  e2e/             all of it`;

test("a map that shows every folder has no problems; depths below, and what it leaves out, need no line", () => {
  expect(mapProblems(map(WHOLE), new Set([...exists, "packages/", "tests/"]))).toEqual([]);
});

test.each([
  ["packages/wire/src/client/", "packages/wire/client/ is not on the map"],
  ["packages/gateway/src/rooms/groups/", "packages/gateway/rooms/groups/ is not on the map"],
  ["packages/gateway/src/observe/", "packages/gateway/observe/ is not on the map"],
  ["packages/cli/", "packages/cli/ is not on the map"],
])("the new folder %s is missed", (folder, problem) => {
  expect(mapProblems(map(WHOLE), new Set([...exists, "packages/", "tests/", folder]))).toEqual([problem]);
});

test("what is gone is missed, too", () => {
  const shrunk = new Set([...exists, "packages/", "tests/"]);
  shrunk.delete("packages/gateway/src/rooms/keys/");
  shrunk.delete("packages/gateway/src/main.ts");
  expect(mapProblems(map(WHOLE), shrunk)).toEqual([
    "packages/gateway/main.ts is on the map and not there",
    "packages/gateway/rooms/keys/ is on the map and not there",
  ]);
});

test("a line that names nothing, and one below nothing, are refused", () => {
  expect(() => mapProblems(map("packages and more"), exists)).toThrow("names no folder");
  expect(() => mapProblems(map("      keys/   who may"), exists)).toThrow("below nothing");
});
