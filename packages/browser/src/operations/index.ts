/** Every operation of the tool. To add one, write its constant and list it here. */
import { clickOperation, pressKeyOperation, typeOperation, waitOperation } from "./actions.ts";
import { makeBatchOperation } from "./batch.ts";
import {
  clearConsoleOperation,
  clearNetworkOperation,
  clearWebSocketsOperation,
  consoleOperation,
  networkBodyOperation,
  networkOperation,
  webSocketsOperation,
} from "./capture.ts";
import type { Operation } from "./define.ts";
import { backOperation, forwardOperation, navigateOperation } from "./navigation.ts";
import { evaluateOperation, resizeOperation, screenshotOperation } from "./page.ts";
import { a11yOperation, domOperation } from "./snapshot.ts";
import {
  activatePageOperation,
  closePageOperation,
  healthOperation,
  infoOperation,
  pagesOperation,
} from "./system.ts";

const single: Operation[] = [
  healthOperation,
  infoOperation,
  navigateOperation,
  backOperation,
  forwardOperation,
  a11yOperation,
  domOperation,
  screenshotOperation,
  clickOperation,
  typeOperation,
  pressKeyOperation,
  evaluateOperation,
  waitOperation,
  consoleOperation,
  clearConsoleOperation,
  networkOperation,
  networkBodyOperation,
  clearNetworkOperation,
  webSocketsOperation,
  clearWebSocketsOperation,
  resizeOperation,
  pagesOperation,
  activatePageOperation,
  closePageOperation,
];

export const operations: Operation[] = [...single, makeBatchOperation(single)];
