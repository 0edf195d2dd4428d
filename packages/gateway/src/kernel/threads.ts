import { join } from "node:path";

const isExecutable = Bun.main.startsWith("/$bunfs/") || Bun.main.includes("~BUN");

/** A thread that runs the code at `path`, seen from `folder`. Within an executable only the path itself is found. */
export const startThread = (folder: string, path: string): Worker =>
  new Worker(isExecutable ? path : join(folder, path), { smol: true, ref: false });
