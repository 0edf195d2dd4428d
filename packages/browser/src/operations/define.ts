/** One constant per operation: its schemas, where it is served, how it runs, and how an MCP client sees it. */
import type { z } from "zod";
import type { Browser } from "../page/browser.ts";
import type { Deadline } from "../page/deadline.ts";
import type { Page } from "../page/page.ts";
import type { Session } from "../session.ts";

export interface Context {
  session: Session;
  deadline: Deadline;
  /** Starts the browser when it is not running. */
  browser: () => Promise<Browser>;
  /** The page that is acted on. */
  page: () => Promise<Page>;
}

/** What a tool call answers with: sections of text, and pictures after them. */
export interface ToolOutput {
  result?: string;
  /** The page's address; included when it changed since it was last reported. */
  page?: { url: string; title: string; status?: number | null; isNews: boolean };
  snapshot?: string;
  /** Lines of what changed. */
  changes?: string;
  /** Logs that were asked for; together they take no more than `logCharsMax`. */
  logs?: { title: string; lines: string[] }[];
  logCharsMax?: number;
  image?: { base64: string; mimeType: string };
}

export interface ToolBinding<P> {
  name: string;
  /** Aliases that work without being listed. */
  alsoNamed?: string[];
  description: string;
  /** What the model is shown; the operation's own schema checks the arguments after `toParams`. */
  input: z.ZodObject;
  toParams: (input: Record<string, unknown>) => Record<string, unknown>;
  isReadOnly: boolean;
  present: (result: never, context: Context, params: P) => Promise<ToolOutput>;
}

export interface Operation {
  name: string;
  summary: string;
  method: "GET" | "POST" | "DELETE";
  path: string;
  params: z.ZodObject;
  result: z.ZodType;
  /** For operations that act on the page: how long they may take unless told otherwise. */
  timeoutMs: number | null;
  /** Where the parameters themselves say how long it may take. */
  timeoutFor?: (params: never) => number;
  run: (context: Context, params: never) => Promise<unknown>;
  tool?: ToolBinding<never>;
}

interface Definition<P extends z.ZodObject, R extends z.ZodType>
  extends Omit<Operation, "params" | "result" | "run" | "tool" | "timeoutMs" | "timeoutFor"> {
  params: P;
  result: R;
  timeoutMs?: number;
  timeoutFor?: (params: z.output<P>) => number;
  run: (context: Context, params: z.output<P>) => Promise<z.input<R>>;
  tool?: Omit<ToolBinding<z.output<P>>, "present" | "toParams" | "isReadOnly"> & {
    toParams?: (input: Record<string, unknown>) => Record<string, unknown>;
    isReadOnly?: boolean;
    present: (result: z.output<R>, context: Context, params: z.output<P>) => Promise<ToolOutput>;
  };
}

export function defineOperation<P extends z.ZodObject, R extends z.ZodType>(
  definition: Definition<P, R>,
): Operation {
  const { tool } = definition;
  return {
    ...definition,
    timeoutMs: definition.timeoutMs ?? null,
    tool: tool && { isReadOnly: false, toParams: (input) => input, ...tool },
  } as Operation;
}
