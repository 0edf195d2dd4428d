/** The MCP server over stdio, in both protocol eras. */
import { Server } from "@modelcontextprotocol/server";
import { type StdioServerHandle, serveStdio } from "@modelcontextprotocol/server/stdio";
import type { Session } from "../session.ts";
import { version } from "../version.ts";
import { callTool, listTools } from "./tools.ts";

export function serveMcp(session: Session): StdioServerHandle {
  let tools: ReturnType<typeof listTools> | null = null;
  return serveStdio(() => {
    const server = new Server({ name: "browser-tool", version }, { capabilities: { tools: {} } });
    server.setRequestHandler("tools/list", () => {
      tools ??= listTools();
      return { tools };
    });
    server.setRequestHandler("tools/call", ({ params }, { mcpReq }) =>
      callTool(session, params.name, params.arguments ?? {}, mcpReq.signal),
    );
    return server;
  });
}
