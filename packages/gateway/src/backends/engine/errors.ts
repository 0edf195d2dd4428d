import { RpcAnswerError, RpcSocketError } from "@model-gateway/wire/json-rpc";
import { isObject } from "../../kernel/json.ts";
import { BackendError } from "../contract.ts";

/** The HTTP status that matches a JSON-RPC error, so that routing treats both alike. */
function statusOf({ code, data }: RpcAnswerError): number {
  const told = isObject(data) ? data.status : undefined;
  if (typeof told === "number" && told >= 400 && told <= 599) return told;
  if (code === -32602 || code === -32600) return 400;
  return code === -32601 ? 501 : 500;
}

/** What went wrong on the way to an engine, in the router's terms; aborts stay aborts. */
export function toBackendError(error: unknown): unknown {
  if (error instanceof RpcAnswerError) {
    const detail = `${error.message} (code ${error.code})`;
    return new BackendError("upstream", detail, statusOf(error));
  }
  if (error instanceof RpcSocketError) {
    const isSent = error.reason === "lost" || error.reason === "timeout";
    return new BackendError(isSent ? "transport" : error.reason, error.message);
  }
  return error;
}
