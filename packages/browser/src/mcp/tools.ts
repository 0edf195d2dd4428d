/** The operations that have a tool, as a model sees them: over MCP, on the command line and at /tools. */
import "./plain-schemas.ts";

import { z } from "zod";
import { ToolError } from "../errors.ts";
import type { Operation, ToolOutput } from "../operations/define.ts";
import { execute, OperationFailed } from "../operations/execute.ts";
import { toolOperations } from "../operations/tools.ts";
import type { Session } from "../session.ts";
import { presentError, presentOutput, type ToolResult } from "./present.ts";

type WithTool = Operation & { tool: NonNullable<Operation["tool"]> };
const withTools = toolOperations.filter((operation): operation is WithTool => operation.tool !== undefined);

/** The schema as the model reads it, without fields that carry no information. */
function inputSchema(input: z.ZodObject): { type: "object" } {
  const { $schema: _, additionalProperties: __, ...schema } = z.toJSONSchema(input, { io: "input" });
  return { ...schema, type: "object" };
}

export function listTools() {
  return withTools.map(({ tool }) => ({
    name: tool.name,
    description: tool.description,
    inputSchema: inputSchema(tool.input.extend({ session: z.string().optional() })),
    ...(tool.isReadOnly ? { annotations: { readOnlyHint: true } } : {}),
  }));
}

const byName = new Map<string, WithTool>();
for (const operation of withTools)
  for (const name of [operation.tool.name, ...(operation.tool.alsoNamed ?? [])]) byName.set(name, operation);

export async function callTool(session: Session, ...call: ToolCall): Promise<ToolResult> {
  return session.options.secrets.redactIn(await runTool(session, ...call));
}

type ToolCall = [name: string, input: Record<string, unknown>, signal?: AbortSignal];

async function runTool(
  unnamed: Session,
  ...[name, { session: sessionName, ...input }, signal]: ToolCall
): Promise<ToolResult> {
  const operation = byName.get(name);
  let session = unnamed;
  if (!operation) {
    const error = new ToolError("not_found", `Tool "${name}" not found. tools/list names those that exist.`);
    return presentError(error, [], session);
  }
  try {
    session = unnamed.named(sessionName);
    const run = () =>
      execute({
        session,
        operation,
        params: operation.tool.toParams(input),
        finish: (result, context, params): Promise<ToolOutput> =>
          operation.tool.present(result as never, context, params as never),
        signal,
      });
    // Parallel calls of a model are meant in order: a click, then the console messages it caused.
    const { value, events } = await (operation.timeoutMs === null ? session.exclusive(run) : run());
    const browser = session.isStarted ? await session.browser() : null;
    return presentOutput(value, { browser, events, session });
  } catch (error) {
    if (error instanceof OperationFailed) return presentError(error.reason, error.events, session);
    const reason = error as ToolError;
    const isInvalid = reason.code === "invalid_request";
    const text = isInvalid ? `Invalid arguments for tool "${name}": ${reason.message}` : reason.message;
    return presentError(new ToolError("invalid_request", text), [], session);
  }
}
