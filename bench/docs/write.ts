/**
 * Writes the tables and charts of docs/performance.md and docs/scaling.md from a run's results. `npm run bench --
 * --write-docs` does it at the end of a whole run; `bun bench/docs/write.ts bench/results/<file>.json` from an
 * earlier one.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Results } from "../lib/figures.ts";
import { cpuChart, growthChart } from "./charts.ts";
import { Lookup } from "./lookup.ts";
import {
  boardTable,
  circumstances,
  goalsTable,
  ownTable,
  peersTable,
  translatedTable,
} from "./performance.ts";
import { capacityTable, costsNotes, costsTable, limitsTable } from "./scaling.ts";

const docs = join(import.meta.dir, "../../docs");

/** Replaces what stands between `<!-- bench:name -->` and `<!-- /bench:name -->`. */
export function writeBlocks(file: string, blocks: Readonly<Record<string, string>>): void {
  const path = join(docs, file);
  let text = readFileSync(path, "utf8");
  for (const [name, content] of Object.entries(blocks)) {
    const [open, close] = [`<!-- bench:${name} -->`, `<!-- /bench:${name} -->`];
    const [from, to] = [text.indexOf(open), text.indexOf(close)];
    if (from === -1 || to === -1) throw new Error(`${file} has no place for ${open}`);
    text = `${text.slice(0, from + open.length)}\n\n${content}\n\n${text.slice(to)}`;
  }
  writeFileSync(path, text);
}

export function writeDocs(results: Results): void {
  const lookup = new Lookup(results);
  writeBlocks("performance.md", {
    circumstances: circumstances(results),
    peers: peersTable(lookup),
    translated: translatedTable(lookup),
    own: ownTable(lookup),
    board: boardTable(lookup),
    goals: goalsTable(lookup),
  });
  writeBlocks("scaling.md", {
    costs: costsTable(lookup),
    notes: costsNotes(lookup),
    capacity: capacityTable(lookup),
    limits: limitsTable(lookup),
  });
  writeFileSync(join(docs, "images/performance-cpu.svg"), cpuChart(lookup));
  writeFileSync(join(docs, "images/performance-growth.svg"), growthChart(lookup));
  const json = join(docs, "performance.json");
  writeFileSync(json, JSON.stringify(results));
  Bun.spawnSync(["node_modules/.bin/biome", "format", "--write", json], { cwd: join(docs, "..") });
  console.log("written: docs/performance.md, docs/scaling.md, their charts, docs/performance.json");
}

if (import.meta.main) {
  const file = process.argv[2];
  if (!file) throw new Error("name a file of bench/results/");
  writeDocs(JSON.parse(readFileSync(file, "utf8")) as Results);
}
