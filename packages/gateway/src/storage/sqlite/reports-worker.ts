import { answerCalls } from "../../kernel/threads.ts";
import type { Row } from "../contract.ts";
import { type Connection, openReader, type Report } from "./database.ts";

let reader: Connection | null = null;

answerCalls<Report, Row[]>(async ({ path, sql, params }) => {
  reader ??= openReader(path);
  return reader.all(sql, params);
});
