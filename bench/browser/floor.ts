/** The floor: the same steps with nothing between the caller and the browser's debugging pipe. */

import { CdpConnection } from "../../packages/browser/src/cdp/connection.ts";
import type { PipeTransport } from "../../packages/browser/src/cdp/pipe.ts";
import { launchBrowser } from "../../packages/browser/src/launch/launch.ts";
import { binaryBehind } from "../../packages/browser/src/launch/open.ts";
import { chromiumPath } from "./contestants.ts";

export interface Floor {
  startMs: number;
  click(): Promise<void>;
  type(): Promise<void>;
  evaluate(): Promise<void>;
  /** Reads the text of the page: the least that any snapshot has to do. */
  read(url: string): Promise<{ ms: number; chars: number }>;
  stop(): Promise<void>;
}

export async function startFloor(url: string): Promise<Floor> {
  const began = performance.now();
  const { transport } = launchBrowser({
    path: binaryBehind(chromiumPath),
    headful: false,
    viewport: { width: 1280, height: 720 },
  });
  const connection = new CdpConnection(transport as PipeTransport);
  const { targetInfos } = await connection.root.send("Target.getTargets");
  const { targetId } = targetInfos.find(({ type }) => type === "page")!;
  const { sessionId } = await connection.root.send("Target.attachToTarget", { targetId, flatten: true });
  const session = connection.session(sessionId);
  await session.send("Page.enable");
  async function open(address: string): Promise<void> {
    const loaded = new Promise<void>((resolve) => {
      const off = session.on("Page.loadEventFired", () => {
        off();
        resolve();
      });
    });
    await session.send("Page.navigate", { url: address });
    await loaded;
  }
  await open(url);
  const run = (expression: string) => session.send("Runtime.evaluate", { expression, returnByValue: true });
  const place = await run("(({x,y,width,height}) => [x+width/2,y+height/2])(go.getBoundingClientRect())");
  const startMs = performance.now() - began;
  const [x, y] = place.result.value as [number, number];
  const mouse = (type: "mousePressed" | "mouseReleased") =>
    session.send("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1 });
  return {
    startMs,
    click: async () => {
      await Promise.all([mouse("mousePressed"), mouse("mouseReleased")]);
      await run("document.title");
    },
    type: async () => {
      await run("document.querySelector('#name').focus(), document.querySelector('#name').select()");
      await session.send("Input.insertText", { text: "some text" });
    },
    evaluate: async () => {
      await run("document.title");
    },
    read: async (address) => {
      await open(address);
      const from = performance.now();
      const { result } = await run("document.body.innerText");
      return { ms: performance.now() - from, chars: String(result.value).length };
    },
    stop: () => connection.close(),
  };
}
