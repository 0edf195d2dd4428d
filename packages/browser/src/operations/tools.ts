/** The operations that are tools of the MCP server. It loads no others. */
import { clickOperation } from "./click.ts";
import { consoleOperation } from "./console.ts";
import type { Operation } from "./define.ts";
import { resizeOperation } from "./device.ts";
import { pressKeyOperation, typeOperation } from "./keyboard.ts";
import { backOperation, forwardOperation, navigateOperation } from "./navigation.ts";
import { evaluateOperation, screenshotOperation } from "./page.ts";
import { a11yOperation, domOperation } from "./snapshot.ts";

export const toolOperations: Operation[] = [
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
  consoleOperation,
  resizeOperation,
];
