/** Pictures of the viewport, of the whole page or of one element, never larger than a model can take. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Page } from "./page.ts";
import { frameHolding } from "./search.ts";
import { notFound, placeInPage } from "./targets.ts";

/** Larger pictures are refused by common model APIs and end the conversation, so they are scaled down or cut. */
const sidePixelsMax = 7_900;

export interface ScreenshotOptions {
  target: string | null;
  type: "png" | "jpeg" | "webp";
  fullPage: boolean;
  quality?: number;
}

export interface ScreenshotResult {
  base64: string;
  mimeType: string;
  width: number;
  height: number;
  /** The page was taller than a picture may be. */
  cut: boolean;
}

interface Area {
  x: number;
  y: number;
  width: number;
  height: number;
}

export async function screenshot(
  page: Page,
  options: ScreenshotOptions,
  deadline: Deadline,
): Promise<ScreenshotResult> {
  const { cssLayoutViewport, cssContentSize } = await page.session.send(
    "Page.getLayoutMetrics",
    undefined,
    deadline.leftMs,
  );
  const origin = { x: cssLayoutViewport.pageX, y: cssLayoutViewport.pageY };
  let area: Area = {
    ...origin,
    width: cssLayoutViewport.clientWidth,
    height: cssLayoutViewport.clientHeight,
  };
  if (options.fullPage) area = { x: 0, y: 0, width: cssContentSize.width, height: cssContentSize.height };
  if (options.target !== null) area = await elementArea(page, options.target, deadline);
  const cut = area.width > sidePixelsMax || area.height > sidePixelsMax;
  const clip = {
    ...area,
    width: Math.min(Math.ceil(area.width), sidePixelsMax),
    height: Math.min(Math.ceil(area.height), sidePixelsMax),
    scale: 1,
  };
  const { data } = await page.session.send(
    "Page.captureScreenshot",
    {
      format: options.type,
      quality: options.type === "png" ? undefined : options.quality,
      clip,
      captureBeyondViewport: options.fullPage || options.target !== null,
      optimizeForSpeed: true,
    },
    deadline.leftMs,
  );
  return { base64: data, mimeType: `image/${options.type}`, width: clip.width, height: clip.height, cut };
}

async function elementArea(page: Page, target: string, deadline: Deadline): Promise<Area> {
  const frame = await frameHolding(page, target, deadline);
  const rect = await frame.call("rect", [target], deadline.leftMs);
  if (!rect) throw notFound(target);
  if (rect.width < 1 || rect.height < 1)
    throw new ToolError(
      "element_not_actionable",
      `"${target}" has no size, so there is nothing to picture. Leave the target out to picture the page.`,
    );
  const place =
    frame === page.mainFrame
      ? rect
      : await placeInPage(page, { frame, x: rect.x, y: rect.y, mustBeHit: false }, deadline);
  // Scrolling to the element may have moved the page, so the offset is read afterwards.
  const { cssLayoutViewport } = await page.session.send("Page.getLayoutMetrics", undefined, deadline.leftMs);
  return {
    x: place.x + cssLayoutViewport.pageX,
    y: place.y + cssLayoutViewport.pageY,
    width: rect.width,
    height: rect.height,
  };
}
