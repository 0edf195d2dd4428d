/** The browser tool as a library: a session to drive, the operations by name, and the servers around them. */

export { bundleLibraries, renderBundleReport, renderScan, scanDependencies } from "./bundle/index.ts";
export type { EngineName, EngineTransport, ResolvedEngine } from "./engines/contract.ts";
export { type ErrorCode, ToolError } from "./errors.ts";
export { openApi } from "./http/openapi.ts";
export { type DebugServer, startDebugServer } from "./http/server.ts";
export type { Content, ToolResult } from "./mcp/present.ts";
export { callTool, listTools } from "./mcp/tools.ts";
export { execute, OperationFailed } from "./operations/execute.ts";
export { operations, run } from "./operations/index.ts";
export { Secrets } from "./policy/secrets.ts";
export { doctor, fetchForBuild, renderDoctor, resolveEngine } from "./resolve/index.ts";
export { Session, type SessionOptions } from "./session.ts";
