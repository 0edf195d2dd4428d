import type { Results } from "./lib/figures.ts";
export function writeDocs(_results: Results): void {}
