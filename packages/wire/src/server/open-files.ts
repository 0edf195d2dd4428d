import { readFileSync } from "node:fs";

/** Used where the system does not tell how many files may be open. */
const CONNECTIONS_OTHERWISE = 8_000;
/** The share of all file descriptors; the rest is for everything else that the process opens. */
const SHARE_OF_CONNECTIONS = 0.8;

/** How many connections the limit of open files allows. */
export function connectionsByOpenFiles(): number {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1];
    return soft ? Math.floor(Number(soft) * SHARE_OF_CONNECTIONS) : CONNECTIONS_OTHERWISE;
  } catch {
    return CONNECTIONS_OTHERWISE;
  }
}
