/** Console messages, uncaught errors and browser log entries of every page, frame and worker. */
import type { CdpSession, EventParams } from "../cdp/connection.ts";
import { Ring } from "./ring.ts";

export type ConsoleLevel = "debug" | "info" | "warning" | "error";

export interface ConsoleMessage {
  level: ConsoleLevel;
  text: string;
  url: string;
  line: number;
  time_ms: number;
  page_id: string;
  /** Counts the page's documents, so that messages of the current one can be selected. */
  document: number;
}

const messagesMax = 1_000;
const textCharsMax = 4_000;
export const levelOrder: ConsoleLevel[] = ["debug", "info", "warning", "error"];

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

export class ConsoleCapture {
  readonly messages = new Ring<ConsoleMessage>(messagesMax);

  attach(session: CdpSession, page: { id: string; documents: number }): void {
    const add = (message: Omit<ConsoleMessage, "page_id" | "document" | "time_ms">) =>
      this.messages.push({
        ...message,
        text: message.text.slice(0, textCharsMax),
        time_ms: Date.now(),
        page_id: page.id,
        document: page.documents,
      });
    session.on("Runtime.consoleAPICalled", ({ type, args, stackTrace }) => {
      const at = stackTrace?.callFrames[0];
      add({
        level: levelOf(type),
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
      });
    });
    session.on("Log.entryAdded", ({ entry }) => {
      const level = entry.level === "verbose" ? "debug" : entry.level;
      add({ level, text: entry.text, url: entry.url ?? "", line: (entry.lineNumber ?? -1) + 1 });
    });
    session.tell("Log.enable");
  }
}
