export { RpcClient } from "./client.ts";
export type { RpcConnection } from "./connection.ts";
export { RpcAnswerError, RpcSocketError } from "./errors.ts";
