import { dirname, join, normalize } from "node:path";

/** Source files by their path from the root of the repository. */
export type Sources = ReadonlyMap<string, string>;

const IMPORT = /^\s*(import|export)\s+(type\s+)?(?:[^"';]*?\sfrom\s+)?["']([^"']+)["']/gm;
const ROOMS = "packages/gateway/src/rooms/";
/** The one file that constructs rooms and hands them to each other. */
export const WIRING = "packages/gateway/src/app/rooms.ts";

interface Allowed {
  code: readonly string[];
  /** Imported as types only. */
  types?: readonly string[];
}

/** What the source of each package may import of the others. */
const PACKAGES: Record<string, Allowed> = {
  wire: { code: [] },
  protocol: { code: [] },
  gateway: { code: ["wire", "protocol", "demo"] },
  agent: { code: ["wire", "protocol"] },
  client: { code: [] },
  cli: { code: ["client", "gateway"] },
  console: { code: ["client"], types: ["gateway"] },
  browser: { code: [] },
  "memory-server": { code: ["wire", "protocol"] },
  demo: { code: ["memory-server", "protocol"], types: ["gateway"] },
  // For tests, benchmarks and scripts; no other package's source may import it.
  testing: { code: ["wire", "protocol", "gateway", "agent"] },
};

interface Edge {
  from: string;
  to: string;
  typeOnly: boolean;
  /** By path rather than by the name of a package. */
  relative: boolean;
}

function importsOf(file: string, text: string): Edge[] {
  const edges: Edge[] = [];
  for (const [, , type, target] of text.matchAll(IMPORT)) {
    const relative = target!.startsWith(".");
    const to = relative
      ? normalize(join(dirname(file), target!))
      : target!.replace(/^@model-gateway\/([a-z-]+)\/?/, "packages/$1/src/");
    if (to.startsWith("packages/")) edges.push({ from: file, to, typeOnly: Boolean(type), relative });
  }
  return edges;
}

const packageOf = (path: string) => path.split("/")[1]!;
const inGateway = (path: string) => path.match(/^packages\/gateway\/src\/(.*)$/)?.[1] ?? null;
const roomOf = (path: string) => path.match(/^packages\/gateway\/src\/rooms\/([^/]+)\//)?.[1] ?? null;
const isContract = (path: string) => /^(storage|backends|bus)\/contract\.ts$/.test(path);

/** Which layers of the gateway each may import; contracts besides, where it says so. */
const LAYERS: Record<string, { layers: RegExp; contracts?: boolean; rule: string }> = {
  kernel: { layers: /^kernel\//, rule: "the kernel imports nothing else of the gateway" },
  observe: { layers: /^(kernel|observe)\//, rule: "observe imports the kernel" },
  storage: { layers: /^(kernel|storage)\//, rule: "storage imports the kernel" },
  bus: { layers: /^(kernel|bus)\//, rule: "the bus imports the kernel" },
  backends: { layers: /^(kernel|backends)\//, rule: "backends import the kernel" },
  transports: {
    layers: /^(kernel|observe|transports)\//,
    contracts: true,
    rule: "transports import the kernel and are handed the registry",
  },
  rooms: {
    layers: /^(kernel|observe|rooms)\//,
    contracts: true,
    rule: "rooms import the kernel, observe, contracts and other rooms",
  },
};

function packageProblems({ from, to, typeOnly, relative }: Edge): string[] {
  const [fromPackage, toPackage] = [packageOf(from), packageOf(to)];
  if (fromPackage === toPackage) return [];
  const problems: string[] = [];
  if (relative) problems.push("packages import each other by name, so that only what is exported is used");
  if (fromPackage === "cli" && toPackage === "gateway" && !from.startsWith("packages/cli/src/service/"))
    problems.push("the command line is a client; only its service/ works on a service of this machine");
  if (toPackage === "demo" && !/^packages\/gateway\/src\/(main|app\/(demo-past|warm-up))\.ts$/.test(from))
    problems.push("only the start of the service knows the demonstration");
  const allowed = PACKAGES[fromPackage];
  if (!allowed) return [...problems, `packages/${fromPackage} is not listed in scripts/lib/imports.ts`];
  const { code, types = [] } = allowed;
  if (!code.includes(toPackage) && !(typeOnly && types.includes(toPackage))) {
    const list = [...code, ...types.map((each) => `types of ${each}`)].join(", ") || "no other package";
    problems.push(`${fromPackage} may import ${list}`);
  }
  return problems;
}

function layerProblems({ from, to }: Edge): string[] {
  const source = inGateway(from);
  const target = inGateway(to);
  if (!source || !target) return [];
  if (isContract(source))
    return target.startsWith("kernel/") || isContract(target)
      ? []
      : ["a contract imports only the kernel and other contracts"];
  const layer = LAYERS[source.split("/")[0]!];
  if (!layer || layer.layers.test(target) || (layer.contracts && isContract(target))) return [];
  return [layer.rule];
}

function roomProblems({ from, to }: Edge): string[] {
  const [fromRoom, toRoom] = [roomOf(from), roomOf(to)];
  if (!fromRoom || !toRoom || fromRoom === toRoom) return [];
  const problems = [];
  // The second door is for the journal thread, which does without the schemas that index.ts brings along.
  if (![`${ROOMS}${toRoom}/index.ts`, `${ROOMS}${toRoom}/for-thread.ts`].includes(to))
    problems.push("rooms meet only through each other's index.ts, or for-thread.ts");
  if (fromRoom === "ledger") problems.push("the ledger imports no room");
  return problems;
}

/** The folders of the inference room, each with those it may import besides itself. */
const INFERENCE: Record<string, readonly string[]> = {
  request: [],
  call: ["request"],
  stream: ["request", "call"],
  turn: ["request", "call", "stream"],
  voices: ["request", "call", "stream", "turn"],
  responses: ["request", "call", "stream", "turn", "voices"],
  "unit-work": ["request", "call", "stream"],
};
const inferenceFolder = (path: string) =>
  path.match(/^packages\/gateway\/src\/rooms\/inference\/([^/]+)\//)?.[1] ?? null;

function inferenceProblems({ from, to }: Edge): string[] {
  const folder = inferenceFolder(from);
  if (!folder || !to.startsWith(`${ROOMS}inference/`)) return [];
  const target = inferenceFolder(to);
  const allowed = INFERENCE[folder];
  if (!allowed) return [`inference/${folder} is not listed in scripts/lib/imports.ts`];
  if (!target || target === folder || allowed.includes(target)) return [];
  return [`inference/${folder} may import ${allowed.join(", ") || "no other folder of its room"}`];
}

/** Built-in modules that take milliseconds to load. */
const SLOW_BUILT_IN = /^node:(child_process|crypto|dns|https?|net|readline|stream|tls|util|zlib)(\/|$)/;
/** Code that only some configurations need. */
const OPTIONAL = /^packages\/gateway\/src\/(storage\/postgres\/(database|watch)\.ts|bus\/redis\/)/;

/** Every start of the service would wait for these; what needs them loads them then. */
function startProblems(file: string, text: string): string[] {
  if (!/^packages\/(gateway|protocol|wire)\/src\//.test(file)) return [];
  const slow = [...text.matchAll(IMPORT)]
    .filter(([, , type, target]) => !type && SLOW_BUILT_IN.test(target!))
    .map(
      ([, , , target]) => `${file} imports ${target}: use process.getBuiltinModule or import() where needed`,
    );
  const optional = importsOf(file, text)
    .filter(({ to, typeOnly }) => !typeOnly && OPTIONAL.test(to) && !OPTIONAL.test(file))
    .map(({ to }) => `${file} imports ${to}: use import() where it is configured`);
  return [...slow, ...optional];
}

/** Code without what only looks like code; a template keeps what it evaluates. */
const withoutTexts = (text: string) =>
  text
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/(^|[^:"'`])\/\/.*$/gm, "$1")
    .replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g, '""');

/** Rooms that a room's code reaches through the `rooms` of a call: `rooms.keys`, `{ rooms: { keys } }`, `{ keys } = rooms`. */
function reachedRooms(text: string): string[] {
  const code = withoutTexts(text);
  const names = [...code.matchAll(/\brooms\??\s*\.\s*(\w+)/g)].map(([, name]) => name!);
  const patterns = [
    ...code.matchAll(/\brooms\s*:\s*\{([^{}]*)\}/g),
    ...code.matchAll(/\{([^{}]*)\}\s*=\s*(?:\w+\s*\.\s*)*rooms\b/g),
  ];
  for (const [, inside] of patterns)
    for (const part of inside!.split(",")) names.push(part.split(":")[0]!.trim());
  return names;
}

/** Where the bracket that opens at or after `start` closes. */
function endOfStatement(code: string, start: number): number {
  let depth = 0;
  for (let at = start; at < code.length; at++) {
    if ("([{".includes(code[at]!)) depth++;
    else if (")]}".includes(code[at]!)) depth--;
    if (depth <= 0 && code[at] === ";") return at;
  }
  return code.length;
}

/** Whether the code uses a variable of this name: not a property of something, and not the name of one. */
const uses = (code: string, name: string) =>
  new RegExp(`(?<![\\w$])(?<!(?<!\\.\\.)\\.)${name}(?![\\w$]|\\s*:)`).test(code);

/**
 * Who is handed whom where rooms are constructed. A room named in what another is given is used by it, whether as
 * itself, within a closure, or by way of a variable.
 */
function handedRooms(wiring: string, rooms: ReadonlySet<string>): [from: string, to: string][] {
  const code = withoutTexts(wiring);
  const given = new Map<string, string>();
  for (const match of code.matchAll(/^ {2,}const (\w+|\{[^}]*\}) = /gm)) {
    const body = code.slice(
      match.index + match[0].length,
      endOfStatement(code, match.index + match[0].length),
    );
    for (const name of match[1]!.match(/\w+/g) ?? []) given.set(name, body);
  }
  const reached = (name: string, seen: Set<string>): void => {
    const body = given.get(name);
    if (body === undefined) return;
    for (const other of given.keys()) {
      if (other === name || seen.has(other) || !uses(body, other)) continue;
      seen.add(other);
      // What a room itself is given is its own business.
      if (!rooms.has(other)) reached(other, seen);
    }
  };
  return [...rooms].flatMap((room) => {
    const seen = new Set<string>();
    reached(room, seen);
    return [...seen]
      .filter((name) => name !== room && rooms.has(name))
      .map((name): [string, string] => [room, name]);
  });
}

/** Who uses whom, by an import, through the rooms of a call, or through what the wiring hands over. */
export function roomGraph(sources: Sources): Map<string, Set<string>> {
  const rooms = new Set([...sources.keys()].flatMap((file) => roomOf(file) ?? []));
  const graph = new Map([...rooms].map((name) => [name, new Set<string>()]));
  const add = (from: string, to: string) => {
    if (from !== to && rooms.has(to)) graph.get(from)!.add(to);
  };
  for (const [file, text] of sources) {
    const from = roomOf(file);
    if (!from) continue;
    for (const { to } of importsOf(file, text)) add(from, roomOf(to) ?? from);
    for (const to of reachedRooms(text)) add(from, to);
  }
  for (const [from, to] of handedRooms(sources.get(WIRING) ?? "", rooms)) add(from, to);
  return graph;
}

/** Rooms whose construction the wiring does not show: what they are handed could not be seen. */
export const unwiredRooms = (sources: Sources): string[] =>
  [...roomGraph(sources).keys()].filter(
    (room) => !new RegExp(`^ {2,}const ${room} = `, "m").test(sources.get(WIRING) ?? ""),
  );

/** The first cycle that a depth-first search finds. */
function cycleIn(graph: ReadonlyMap<string, ReadonlySet<string>>): string[] | null {
  const done = new Set<string>();
  const visit = (name: string, path: string[]): string[] | null => {
    if (path.includes(name)) return [...path.slice(path.indexOf(name)), name];
    if (done.has(name)) return null;
    for (const next of graph.get(name) ?? []) {
      const cycle = visit(next, [...path, name]);
      if (cycle) return cycle;
    }
    done.add(name);
    return null;
  };
  for (const name of graph.keys()) {
    const cycle = visit(name, []);
    if (cycle) return cycle;
  }
  return null;
}

/** Cycles that are known and about to go. One that is gone must leave this list. */
const KNOWN_CYCLES: readonly (readonly [string, string])[] = [["compat", "inference"]];

/** Takes the known cycles out of the graph; says which of them are none any more. */
function withoutKnown(graph: Map<string, Set<string>>): string[] {
  return KNOWN_CYCLES.flatMap(([a, b]) => {
    if (!graph.has(a) || !graph.has(b)) return [];
    const isCycle = graph.get(a)!.has(b) && graph.get(b)!.delete(a);
    return isCycle ? [] : [`${a} and ${b} form no cycle: take them off KNOWN_CYCLES`];
  });
}

/** Everything that goes against the direction of the imports, each with its rule. */
export function importProblems(sources: Sources): string[] {
  const problems: string[] = [];
  for (const [file, text] of sources) {
    problems.push(...startProblems(file, text));
    for (const edge of importsOf(file, text)) {
      const rules = [packageProblems, layerProblems, roomProblems, inferenceProblems].flatMap((check) =>
        check(edge),
      );
      problems.push(...rules.map((rule) => `${edge.from} imports ${edge.to}: ${rule}`));
    }
  }
  const graph = roomGraph(sources);
  problems.push(...withoutKnown(graph));
  const cycle = cycleIn(graph);
  if (cycle) problems.push(`rooms form a cycle: ${cycle.join(" -> ")}`);
  return problems;
}
