import { readFileSync } from "node:fs";

/** Where the system does not tell how many files may be open. */
const CONNECTIONS_OTHERWISE = 8_000;
/** Of the files that may be open; the others are for upstreams, the database and the journal. */
const SHARE_OF_CLIENTS = 0.8;

/** How many connections there may be so that there is still a file for everything else. */
export function connectionsByOpenFiles(): number {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8"))?.[1];
    return soft ? Math.floor(Number(soft) * SHARE_OF_CLIENTS) : CONNECTIONS_OTHERWISE;
  } catch {
    return CONNECTIONS_OTHERWISE;
  }
}
