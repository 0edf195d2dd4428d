/** A download as lines for a person who waits. */
import type { Progress } from "./download.ts";

/** One line for each phase and each tenth of the way. */
export function progressLines(report: (text: string) => void): (progress: Progress) => void {
  let last = "";
  return ({ phase, doneBytes, totalBytes }) => {
    const tenths = totalBytes ? Math.floor((doneBytes / totalBytes) * 10) : 0;
    const line = `browser: ${phase}${totalBytes ? ` ${tenths * 10}%` : ""}`;
    if (line !== last) report(line);
    last = line;
  };
}
