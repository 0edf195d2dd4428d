/** Console messages, uncaught errors and browser log entries of every page, frame and worker. */
import { z } from "zod";
import type { CdpSession, EventParams } from "../cdp/connection.ts";
import { Ring } from "./ring.ts";

/** From the least to the worst. */
export const levelNames = ["debug", "info", "warning", "error"] as const;
export type ConsoleLevel = (typeof levelNames)[number];

export const ConsoleMessage = z.object({
  level: z.enum(levelNames),
  text: z.string(),
  url: z.string(),
  line: z.number(),
  column: z.number(),
  stack: z.array(z.string()).describe("Of errors and warnings: who called whom, innermost first"),
  time_ms: z.number(),
  page_id: z.string(),
});
/** `document` counts the page's documents, so that messages of the current one can be selected. */
type Kept = z.output<typeof ConsoleMessage> & { document: number };

const messagesMax = 1_000;
const textCharsMax = 4_000;
const stackFramesMax = 10;

type RemoteObject = EventParams<"Runtime.consoleAPICalled">["args"][number];

function textOf(value: RemoteObject): string {
  if (value.type === "string") return String(value.value);
  if (value.unserializableValue) return value.unserializableValue;
  if ("value" in value && value.type !== "object") return String(value.value);
  if (value.subtype === "null") return "null";
  const { preview } = value;
  if (preview?.properties && value.subtype !== "error") {
    const entries = preview.properties.map((entry) =>
      preview.subtype === "array"
        ? (entry.value ?? entry.type)
        : `${entry.name}: ${entry.value ?? entry.type}`,
    );
    const more = preview.overflow ? ", …" : "";
    return preview.subtype === "array" ? `[${entries.join(", ")}${more}]` : `{${entries.join(", ")}${more}}`;
  }
  return value.description ?? value.type;
}

function levelOf(type: string): ConsoleLevel {
  if (type === "error" || type === "assert") return "error";
  if (type === "warning" || type === "debug") return type;
  return "info";
}

type StackTrace = EventParams<"Runtime.consoleAPICalled">["stackTrace"];

const stackOf = (trace: StackTrace) =>
  (trace?.callFrames ?? [])
    .slice(0, stackFramesMax)
    .map(
      ({ functionName, url, lineNumber, columnNumber }) =>
        `${functionName || "(anonymous)"} ${url}:${lineNumber + 1}:${columnNumber + 1}`,
    );

export class ConsoleCapture {
  readonly messages = new Ring<Kept>(messagesMax);

  attach(session: CdpSession, page: { id: string; documents: number }): void {
    const add = (message: Omit<Kept, "page_id" | "document" | "time_ms">) =>
      this.messages.push({
        ...message,
        text: message.text.slice(0, textCharsMax),
        time_ms: Date.now(),
        page_id: page.id,
        document: page.documents,
      });
    session.on("Runtime.consoleAPICalled", ({ type, args, stackTrace }) => {
      const at = stackTrace?.callFrames[0];
      const level = levelOf(type);
      add({
        level,
        stack: level === "error" || level === "warning" ? stackOf(stackTrace) : [],
        column: at ? at.columnNumber + 1 : 0,
        text: args.map(textOf).join(" "),
        url: at?.url ?? "",
        line: at ? at.lineNumber + 1 : 0,
      });
    });
    session.on("Runtime.exceptionThrown", ({ exceptionDetails }) => {
      add({
        level: "error",
        text: exceptionDetails.exception?.description ?? exceptionDetails.text,
        url: exceptionDetails.url ?? "",
        line: exceptionDetails.lineNumber + 1,
        column: exceptionDetails.columnNumber + 1,
        stack: stackOf(exceptionDetails.stackTrace),
      });
    });
    session.on("Log.entryAdded", ({ entry }) => {
      const level = entry.level === "verbose" ? "debug" : entry.level;
      const { text, url = "", lineNumber = -1, stackTrace } = entry;
      add({ level, text, url, line: lineNumber + 1, column: 0, stack: stackOf(stackTrace) });
    });
    session.tell("Log.enable");
  }
}
