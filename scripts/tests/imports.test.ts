import { expect, test } from "bun:test";
import { importProblems, roomGraph, unwiredRooms, WIRING } from "../lib/imports.ts";

const ROOMS = "packages/gateway/src/rooms";
const wiring = (body: string) => `export async function openRooms() {\n${body}\n}\n`;

/** Three rooms; `keys` imports `groups`, and nothing else is known of anyone. */
const house = (more: Record<string, string> = {}) =>
  new Map(
    Object.entries({
      [`${ROOMS}/groups/index.ts`]: 'export { Groups } from "./service.ts";\n',
      [`${ROOMS}/keys/service.ts`]: 'import type { Groups } from "../groups/index.ts";\n',
      [`${ROOMS}/usage/index.ts`]: "export class Usage {}\n",
      [WIRING]: wiring(
        "  const groups = await open(new Groups());\n  const keys = await open(new Keys({ groups }));",
      ),
      ...more,
    }),
  );
const cycle = (...names: string[]) => [`rooms form a cycle: ${names.join(" -> ")}`];

test("a house without cycles has no problems", () => {
  expect(importProblems(house())).toEqual([]);
  expect(roomGraph(house()).get("keys")).toEqual(new Set(["groups"]));
});

test.each([
  ["rooms.keys", "export const list = ({ rooms }) => rooms.keys.list();"],
  ["a pattern", "export const list = ({ rooms: { usage, keys } }) => keys.list();"],
  ["a renaming pattern", "export const list = ({ rooms: { keys: all } }) => all.list();"],
  ["what is taken out of rooms", "const { keys } = call.rooms;"],
])("a cycle through %s of a call is found", (_, text) => {
  const sources = house({ [`${ROOMS}/groups/methods.ts`]: text });
  expect(importProblems(sources)).toEqual(cycle("groups", "keys", "groups"));
});

test.each([
  ["a closure", "new Groups({ isKnown: (id) => keys.has(id) })"],
  ["a closure of a constructor's argument", "new Groups({ watch: new Watch(() => [...keys.all()]) })"],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a program
  ["a template", "new Groups({ title: () => `${keys.size} keys` })"],
  ["a spread", "new Groups({ ...keys })"],
  ["a variable", "new Groups({ ...parts })"],
])("a cycle through %s that the wiring hands over is found", (_, construct) => {
  const sources = house({
    [WIRING]: wiring(
      `  const parts = { size: () => keys.size };\n  const groups = await open(\n    ${construct},\n  );\n  const keys = new Keys({ groups });`,
    ),
  });
  expect(importProblems(sources)).toEqual(cycle("groups", "keys", "groups"));
});

test("a room that the wiring does not construct under its own name cannot be checked, and is named", () => {
  expect(unwiredRooms(house())).toEqual(["usage"]);
});

test("a longer cycle, of which each kind of use is a part, is found", () => {
  const sources = house({
    [`${ROOMS}/groups/methods.ts`]: "export const list = ({ rooms }) => rooms.usage.list();",
    [WIRING]: wiring("  const usage = new Usage({ keys: () => keys });\n  const keys = new Keys();"),
  });
  expect(importProblems(sources)).toEqual(cycle("groups", "usage", "keys", "groups"));
});

test("names of properties, texts, comments and a room's own name are no use of a room", () => {
  const sources = house({
    [`${ROOMS}/groups/methods.ts`]:
      '// rooms.keys is not used\nconst help = "see rooms.keys"; rooms.groups.list();',
    [WIRING]: wiring(
      '  const groups = new Groups({ keys: null, title: "keys", size: other.keys, groups: 1 }); // keys\n  const keys = new Keys({ groups });',
    ),
  });
  expect(importProblems(sources)).toEqual([]);
});

test.each([
  ["packages/wire/src/a.ts", "@model-gateway/protocol/b.ts", "wire may import no other package"],
  ["packages/cli/src/commands/a.ts", "@model-gateway/gateway/config.ts", "the command line is a client"],
  [
    "packages/demo/src/a.ts",
    "@model-gateway/gateway/config.ts",
    "demo may import memory-server, protocol, types of gateway",
  ],
  ["packages/gateway/src/app/a.ts", "@model-gateway/client", "gateway may import wire, protocol, demo"],
  ["packages/gateway/src/rooms/usage/a.ts", "@model-gateway/demo", "only the start of the service"],
  ["packages/gateway/src/kernel/a.ts", "../rooms/usage/index.ts", "the kernel imports nothing else"],
  ["packages/gateway/src/observe/a.ts", "../storage/contract.ts", "observe imports the kernel"],
  ["packages/gateway/src/rooms/usage/a.ts", "../../storage/index.ts", "rooms import the kernel"],
  [
    "packages/gateway/src/rooms/usage/a.ts",
    "../keys/service.ts",
    "rooms meet only through each other's index.ts",
  ],
  ["packages/gateway/src/rooms/ledger/a.ts", "../usage/index.ts", "the ledger imports no room"],
  ["packages/gateway/src/backends/contract.ts", "./shared/a.ts", "a contract imports only"],
  ["packages/gateway/src/app/a.ts", "../../../wire/src/b.ts", "packages import each other by name"],
  ["packages/new/src/a.ts", "@model-gateway/wire/b.ts", "packages/new is not listed"],
])("%s may not import %s", (file, target, rule) => {
  const problems = importProblems(new Map([[file, `import { a } from "${target}";\n`]]));
  expect(problems).toHaveLength(1);
  expect(problems[0]).toStartWith(`${file} imports `);
  expect(problems[0]).toContain(rule);
});

test("what would slow down every start of the service is not imported at its top", () => {
  const file = "packages/gateway/src/storage/index.ts";
  const problems = (text: string) => importProblems(house({ [file]: text }));
  expect(problems('import { isIP } from "node:net";\n')).toEqual([
    `${file} imports node:net: use process.getBuiltinModule or import() where needed`,
  ]);
  expect(problems('import { Db } from "./postgres/database.ts";\n')).toEqual([
    `${file} imports packages/gateway/src/storage/postgres/database.ts: use import() where it is configured`,
  ]);
  expect(problems('import type { BlockList } from "node:net";\n')).toEqual([]);
  expect(problems('const { Db } = await import("./postgres/database.ts");\n')).toEqual([]);
  expect(problems('import { readFileSync } from "node:fs";\n')).toEqual([]);
});
