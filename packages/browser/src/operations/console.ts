import { z } from "zod";
import { type ConsoleLevel, ConsoleMessage, levelNames } from "../capture/console.ts";
import { defineOperation } from "./define.ts";
import { newestWithin } from "./logs.ts";
import { queryFlag, queryInt } from "./schemas.ts";

const listMax = 1_000;
export const limit = queryInt(1, listMax).default(200).describe("The newest so many");

export const consoleOperation = defineOperation({
  name: "console",
  summary: "Console messages and uncaught errors, oldest first",
  method: "GET",
  path: "/console",
  params: z.object({
    level: z.enum(levelNames).default("info").describe("This level and worse"),
    all: queryFlag.default(true).describe("Also those of documents that the page has left"),
    limit,
  }),
  result: z.object({
    total: z.number(),
    errors: z.number(),
    warnings: z.number(),
    dropped: z.number().describe("Older messages that were forgotten"),
    messages: z.array(ConsoleMessage),
  }),
  run: async ({ browser }, { level, all, limit: max }) => {
    const running = await browser();
    const page = await running.page();
    const wanted = levelNames.indexOf(level);
    const inScope = running.console.messages.items.filter(
      (message) => all || (message.page_id === page.id && message.document === page.documents),
    );
    const atLevel = (name: ConsoleLevel) => inScope.filter((message) => message.level === name).length;
    return {
      total: inScope.length,
      errors: atLevel("error"),
      warnings: atLevel("warning"),
      dropped: running.console.messages.dropped,
      messages: inScope
        .filter((message) => levelNames.indexOf(message.level) >= wanted)
        .slice(-max)
        .map(({ document: _, ...message }) => message),
    };
  },
  tool: {
    name: "browser_console_messages",
    description: "Console messages of the page",
    isReadOnly: true,
    input: z.object({
      level: z.enum(levelNames).optional(),
      all: z.boolean().optional().describe("Since the start, not only this page"),
    }),
    toParams: (input) => ({ all: false, ...input, limit: listMax }),
    present: async ({ total, errors, warnings, messages }, { session }) => {
      const lines = messages.map(({ level, text, url, line, column, stack }) => {
        // The text of an error often holds its stack already.
        const callers = /\n\s+at /.test(text) ? [] : stack.slice(1).map((each) => `\n    at ${each}`);
        return `[${level.toUpperCase()}] ${text} @ ${url}:${line}${column ? `:${column}` : ""}${callers.join("")}`;
      });
      const kept = newestWithin(lines, session.contentCharsMax);
      const left = lines.length - kept.length;
      const head = `Total messages: ${total} (Errors: ${errors}, Warnings: ${warnings})`;
      const note = left > 0 ? `\n… ${left} older messages left out` : "";
      return { result: `${head}${note}\n${kept.join("\n")}`.trimEnd() };
    },
  },
});
