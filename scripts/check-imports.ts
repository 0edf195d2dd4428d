/**
 * Checks the import direction of the house: wire, protocol <- kernel <- contracts <- rooms <- app. Rooms meet only
 * through each other's index.ts and without cycles. Each package imports only those listed for it below. Each
 * violation is printed with the rule that it breaks.
 */

import { dirname, join, normalize } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");
const importPattern = /^\s*(import|export)\s+(type\s+)?(?:[^"';]*?\sfrom\s+)?["']([^"']+)["']/gm;

interface Edge {
  from: string;
  to: string;
  typeOnly: boolean;
  /** By path rather than by the name of a package. */
  relative: boolean;
}

const edges: Edge[] = [];
for await (const file of new Glob("packages/*/src/**/*.{ts,tsx}").scan(root)) {
  const text = await Bun.file(join(root, file)).text();
  for (const match of text.matchAll(importPattern)) {
    const target = match[3]!;
    const relative = target.startsWith(".");
    const to = relative
      ? normalize(join(dirname(file), target))
      : target.replace(/^@model-gateway\/([a-z-]+)\/?/, "packages/$1/src/");
    if (to.startsWith("packages/")) edges.push({ from: file, to, typeOnly: Boolean(match[2]), relative });
  }
}

const gateway = (path: string) => path.match(/^packages\/gateway\/src\/(.*)$/)?.[1] ?? null;
const room = (path: string) => gateway(path)?.match(/^rooms\/([^/]+)\//)?.[1] ?? null;
const isContract = (path: string) => /^(storage|backends|bus)\/contract\.ts$/.test(path);

/** What the source of each package may import of the others; `types` only as types. */
const PACKAGES: Record<string, { code: readonly string[]; types?: readonly string[] }> = {
  wire: { code: [] },
  protocol: { code: [] },
  gateway: { code: ["wire", "protocol", "demo"] },
  cli: { code: ["client", "gateway"] },
  "memory-server": { code: ["wire", "protocol"] },
  demo: { code: ["memory-server"], types: ["gateway"] },
  agent: { code: ["protocol"] },
  client: { code: [] },
  console: { code: ["client"], types: ["gateway"] },
  browser: { code: [] },
  // For tests, benchmarks and scripts; no other package's source may import it.
  testing: { code: ["wire", "protocol", "gateway", "agent"] },
};

const problems: string[] = [];
const report = ({ from, to }: Edge, rule: string) => problems.push(`${from} imports ${to}: ${rule}`);
const ruleOf = (name: string, { code, types = [] }: { code: readonly string[]; types?: readonly string[] }) =>
  `${name} may import ${[...code, ...types.map((each) => `types of ${each}`)].join(", ") || "no other package"}`;

const roomEdges = new Map<string, Set<string>>();
for (const edge of edges) {
  const { from, to, typeOnly, relative } = edge;
  const fromPackage = from.split("/")[1]!;
  const toPackage = to.split("/")[1]!;
  if (fromPackage !== toPackage) {
    if (relative) report(edge, "packages import each other by name, so that only what is exported is used");
    if (fromPackage === "cli" && toPackage === "gateway" && !from.startsWith("packages/cli/src/service/"))
      report(edge, "the command line is a client; only its service/ works on a service of this machine");
    if (toPackage === "demo" && !/^packages\/gateway\/src\/(main|app\/demo-past)\.ts$/.test(from))
      report(edge, "only the start of the service knows the demonstration");
    const allowed = PACKAGES[fromPackage];
    if (!allowed) report(edge, `packages/${fromPackage} is not listed in check-imports.ts`);
    else if (!allowed.code.includes(toPackage) && !(typeOnly && allowed.types?.includes(toPackage)))
      report(edge, ruleOf(fromPackage, allowed));
  }

  const source = gateway(from);
  const target = gateway(to);
  if (!source || !target) continue;
  const layer = source.split("/")[0];
  if (layer === "kernel" && !target.startsWith("kernel/"))
    report(edge, "the kernel imports nothing of the house");
  if (layer === "observe" && !/^(kernel|observe)\//.test(target)) report(edge, "observe imports the kernel");
  if (isContract(source) && !target.startsWith("kernel/") && !isContract(target))
    report(edge, "a contract imports only the kernel and other contracts");
  if (layer === "transports" && !/^(kernel|observe|transports)\//.test(target) && !isContract(target))
    report(edge, "transports import the kernel and are handed the registry");
  if (layer === "storage" && !/^(kernel|storage)\//.test(target))
    report(edge, "storage imports kernel and storage");
  if (layer === "bus" && !/^(kernel|bus)\//.test(target)) report(edge, "the bus imports kernel and bus");
  if (layer === "backends" && !/^(kernel|backends)\//.test(target))
    report(edge, "backends import kernel and backends");
  const fromRoom = room(from);
  const toRoom = room(to);
  if (fromRoom) {
    if (toRoom && toRoom !== fromRoom) {
      if (!to.endsWith(`rooms/${toRoom}/index.ts`))
        report(edge, "rooms meet only through each other's index.ts");
      if (fromRoom === "ledger") report(edge, "the ledger imports no room");
      roomEdges.set(fromRoom, (roomEdges.get(fromRoom) ?? new Set()).add(toRoom));
    }
    if (!toRoom && !/^(kernel|observe|rooms)\//.test(target) && !isContract(target))
      report(edge, "rooms import the kernel, observe, contracts and other rooms");
  }
}

/** Depth-first search for a cycle among rooms. */
function findCycle(): string[] | null {
  const done = new Set<string>();
  const visit = (name: string, path: string[]): string[] | null => {
    if (path.includes(name)) return [...path.slice(path.indexOf(name)), name];
    if (done.has(name)) return null;
    for (const next of roomEdges.get(name) ?? []) {
      const cycle = visit(next, [...path, name]);
      if (cycle) return cycle;
    }
    done.add(name);
    return null;
  };
  for (const name of roomEdges.keys()) {
    const cycle = visit(name, []);
    if (cycle) return cycle;
  }
  return null;
}

const cycle = findCycle();
if (cycle) problems.push(`rooms form a cycle: ${cycle.join(" -> ")}`);
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
