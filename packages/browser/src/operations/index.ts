/** Every operation of the tool. To add one, write its constant and list it here. */
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
import { permissionsOperation, resizeOperation } from "./device.ts";
import {
  pressKeyOperation,
  scrollOperation,
  selectOperation,
  typeOperation,
  uploadOperation,
} from "./keyboard.ts";
import { backOperation, forwardOperation, navigateOperation } from "./navigation.ts";
import { evaluateOperation, pdfOperation, screenshotOperation } from "./page.ts";
import { activatePageOperation, closePageOperation, pagesOperation } from "./pages.ts";
import { clickOperation, dragOperation, hoverOperation } from "./pointer.ts";
import { a11yOperation, domOperation } from "./snapshot.ts";
import {
  clearCookiesOperation,
  clearStorageOperation,
  cookiesOperation,
  setCookiesOperation,
  setStorageOperation,
  storageOperation,
} from "./storage.ts";
import { healthOperation, infoOperation } from "./system.ts";
import { waitForSelectorOperation, waitOperation } from "./wait.ts";

const single: Operation[] = [
  healthOperation,
  infoOperation,
  navigateOperation,
  backOperation,
  forwardOperation,
  a11yOperation,
  domOperation,
  screenshotOperation,
  pdfOperation,
  clickOperation,
  hoverOperation,
  dragOperation,
  typeOperation,
  selectOperation,
  uploadOperation,
  pressKeyOperation,
  scrollOperation,
  evaluateOperation,
  waitForSelectorOperation,
  waitOperation,
  consoleOperation,
  clearConsoleOperation,
  networkOperation,
  networkBodyOperation,
  clearNetworkOperation,
  webSocketsOperation,
  clearWebSocketsOperation,
  resizeOperation,
  permissionsOperation,
  cookiesOperation,
  setCookiesOperation,
  clearCookiesOperation,
  storageOperation,
  setStorageOperation,
  clearStorageOperation,
  pagesOperation,
  activatePageOperation,
  closePageOperation,
];

export const operations: Operation[] = [...single, makeBatchOperation(single)];
