/** The thread of `ReportThread`. */
import { type Connection, openReader } from "./database.ts";
import type { Report, Reported } from "./reports.ts";

declare const self: Worker;

let reader: Connection | null = null;

self.onmessage = async ({ data: { id, path, sql, params } }: MessageEvent<Report>) => {
  const answer = (reported: Reported) => self.postMessage(reported);
  try {
    reader ??= openReader(path);
    answer({ id, rows: await reader.all(sql, params) });
  } catch (error) {
    const { message, code } = error as Error & { code?: unknown };
    answer({ id, failed: { message, code } });
  }
};
