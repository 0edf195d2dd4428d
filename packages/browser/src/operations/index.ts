/** Every operation of the tool. To add one, write its constant and list it here, or in tools.ts if it is a tool. */
import { ToolError } from "../errors.ts";
import type { Session } from "../session.ts";
import { makeBatchOperation } from "./batch.ts";
import type { Operation } from "./define.ts";
import { execute } from "./execute.ts";
import { networkOperation, requestOperation, webSocketsOperation } from "./network.ts";
import { choosePageOperation, pagesOperation } from "./pages.ts";
import {
  clearCookiesOperation,
  clearStorageOperation,
  cookiesOperation,
  setCookiesOperation,
  setStorageOperation,
  storageOperation,
} from "./storage.ts";
import { endSessionOperation, healthOperation, infoOperation, sessionsOperation } from "./system.ts";
import { toolOperations } from "./tools.ts";
import { waitForSelectorOperation, waitOperation } from "./wait.ts";

const single: Operation[] = [
  healthOperation,
  infoOperation,
  sessionsOperation,
  endSessionOperation,
  ...toolOperations,
  waitForSelectorOperation,
  waitOperation,
  cookiesOperation,
  setCookiesOperation,
  clearCookiesOperation,
  storageOperation,
  setStorageOperation,
  clearStorageOperation,
  networkOperation,
  requestOperation,
  webSocketsOperation,
  pagesOperation,
  choosePageOperation,
];

export const operations: Operation[] = [...single, makeBatchOperation(single)];

/** Runs an operation by its name, for programs. The result is that of the HTTP API, without events. */
export async function run(
  session: Session,
  name: string,
  params: Record<string, unknown> = {},
): Promise<Record<string, unknown>> {
  const operation = operations.find((each) => each.name === name);
  if (!operation) throw new ToolError("not_found", `There is no operation "${name}".`);
  const { value } = await execute({ session, operation, params, finish: async (result) => result });
  return session.options.secrets.redactIn(value as Record<string, unknown>);
}
