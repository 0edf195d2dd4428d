/** The debug server: every operation at its path, JSON in and out. */
import { errorStatus, ToolError, toToolError } from "../errors.ts";
import { callTool } from "../mcp/tools.ts";
import type { Operation } from "../operations/define.ts";
import { execute, OperationFailed } from "../operations/execute.ts";
import { operations } from "../operations/index.ts";
import type { Notice } from "../page/notices.ts";
import type { Session, SessionOptions } from "../session.ts";
import { openApi } from "./openapi.ts";
import { checkRequest } from "./safety.ts";

const bodyBytesMax = 8 * 1024 * 1024;
const listenerBytesMax = 8 * bodyBytesMax;

export interface DebugServerOptions {
  session: Session;
  port: number;
  token: string | null;
}

export interface DebugServer {
  port: number;
  url: string;
  /** When it was last asked for something. */
  readonly lastUsedMs: number;
  stop(): Promise<void>;
}

function operationAt(method: string, path: string): Operation {
  const there = operations.filter((each) => each.path === path);
  const operation = there.find((each) => each.method === method);
  if (operation) return operation;
  if (there.length === 0)
    throw new ToolError("not_found", `There is no ${path}. GET /openapi.json describes every endpoint.`);
  const allowed = there.map((each) => each.method).join(", ");
  throw new ToolError("method_not_allowed", `${path} takes ${allowed}, not ${method}.`);
}

/** Body size is checked here: the listener's own refusal has no message. */
async function readBody(request: Request): Promise<Record<string, unknown>> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of request.body ?? []) {
    bytes += part.length;
    if (bytes > bodyBytesMax)
      throw new ToolError("payload_too_large", `The body is larger than ${bodyBytesMax} bytes.`);
    parts.push(part);
  }
  const text = Buffer.concat(parts).toString();
  if (text.trim() === "") return {};
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (error) {
    throw new ToolError("invalid_request", `The body is not JSON: ${(error as Error).message}`);
  }
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw new ToolError("invalid_request", "The body must be a JSON object.");
  return body as Record<string, unknown>;
}

/** In the query, or in a body where the operation has no field of that name: `session` of /storage is its storage. */
function sessionName({ params }: Operation, given: Record<string, unknown>, { searchParams }: URL): unknown {
  return searchParams.get("session") ?? ("session" in params.shape ? undefined : given.session);
}

function withEvents(value: unknown, events: Notice[]): unknown {
  return events.length > 0 && typeof value === "object" ? { ...value, events } : value;
}

function errorResponse(error: unknown, { secrets }: SessionOptions): Response {
  const reason = error instanceof OperationFailed ? error.reason : toToolError(error);
  const events = error instanceof OperationFailed ? error.events : [];
  const { code, message } = reason;
  const body = withEvents({ error: { code, message } }, events);
  return Response.json(secrets.redactIn(body), { status: errorStatus[code] });
}

export function startDebugServer({ session, port, token }: DebugServerOptions): DebugServer {
  let lastUsedMs = performance.now();
  let isAsked = 0;

  async function answer(request: Request, server: Bun.Server<undefined>): Promise<Response> {
    checkRequest(request, { port: server.port!, token });
    const url = new URL(request.url);
    if (url.pathname === "/openapi.json" && request.method === "GET")
      return Response.json(openApi(operations));
    const tool = /^\/tools\/(\w+)$/.exec(url.pathname)?.[1];
    if (tool && request.method === "POST") {
      server.timeout(request, 0);
      return Response.json(await callTool(session, tool, await readBody(request), request.signal));
    }
    const operation = operationAt(request.method, url.pathname);
    // Operations have their own deadlines; the connection must not be cut before them.
    server.timeout(request, 0);
    const given =
      operation.method === "POST" ? await readBody(request) : Object.fromEntries(url.searchParams);
    const { value, events } = await execute({
      session: session.named(sessionName(operation, given, url)),
      operation,
      params: given,
      finish: async (result) => result,
      // A caller that hangs up does not keep the browser busy.
      signal: request.signal,
    });
    return Response.json(session.options.secrets.redactIn(withEvents(value, events)));
  }

  const server = Bun.serve({
    hostname: "127.0.0.1",
    port,
    maxRequestBodySize: listenerBytesMax,
    fetch: async (request, bunServer) => {
      isAsked++;
      try {
        return await answer(request, bunServer);
      } catch (error) {
        return errorResponse(error, session.options);
      } finally {
        isAsked--;
        lastUsedMs = performance.now();
      }
    },
  });
  return {
    port: server.port!,
    url: `http://127.0.0.1:${server.port}`,
    get lastUsedMs() {
      return isAsked > 0 ? performance.now() : lastUsedMs;
    },
    stop: () => server.stop(true),
  };
}
