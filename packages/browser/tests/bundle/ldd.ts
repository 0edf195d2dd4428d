import { readdirSync, realpathSync } from "node:fs";
import { basename, join } from "node:path";
import { detectFormat } from "../../src/bundle/binary.ts";
import { scanDependencies } from "../../src/bundle/scan.ts";

/** What `ldd` prints, as file name → path; null for "not found". The kernel's own page has no file and is left out. */
export function parseLdd(output: string): Map<string, string | null> {
  const entries = new Map<string, string | null>();
  for (const line of output.split("\n")) {
    const arrow = /^\s+(\S+) => (?:(\/\S+) \(0x|(not found))/.exec(line);
    if (arrow) entries.set(basename(arrow[1]!), arrow[2] ?? null);
    const plain = /^\s+(\/\S+) \(0x/.exec(line);
    if (plain) entries.set(basename(plain[1]!), plain[1]!);
  }
  return entries;
}

/** Every distinct ELF file in a directory that this process can read. */
export function elfFilesIn(directory: string): string[] {
  const files = new Set<string>();
  for (const name of readdirSync(directory)) {
    try {
      const path = realpathSync(join(directory, name));
      if (detectFormat(path) === "elf") files.add(path);
    } catch {
      // Dangling links, directories and unreadable files are none of the comparison's business.
    }
  }
  return [...files].sort();
}

export interface Comparison {
  path: string;
  libraries: number;
  differences: string[];
}

export async function compareWithLdd(path: string): Promise<Comparison> {
  const child = Bun.spawn(["ldd", path], { stdout: "pipe", stderr: "pipe", env: { PATH: process.env.PATH } });
  const [text, errors] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  const scan = scanDependencies(path);
  const expected = parseLdd(text);
  const isStatic = /statically linked|not a dynamic executable/.test(text + errors);
  const ours = new Map(scan.dependencies.map(({ name, path: found }) => [basename(name), found]));
  const differences: string[] = [];
  for (const [name, found] of expected)
    if (!ours.has(name)) differences.push(`${name}: ldd has it, the scan does not`);
    else if (ours.get(name) !== found) differences.push(`${name}: ldd ${found}, scan ${ours.get(name)}`);
  for (const name of ours.keys())
    if (!expected.has(name)) differences.push(`${name}: the scan has it, ldd does not`);
  if (isStatic && ours.size > 0) differences.push("ldd calls it static");
  if (!isStatic && expected.size === 0) differences.push(`ldd printed nothing readable: ${text}${errors}`);
  return { path, libraries: expected.size, differences };
}
