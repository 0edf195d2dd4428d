/** Pictures of the viewport, of the whole page or of one element, never larger than a model can take. */
import { ToolError } from "../errors.ts";
import type { Deadline } from "./deadline.ts";
import type { Page } from "./page.ts";
import { frameHolding } from "./search.ts";
import { notFound, placeInPage } from "./targets.ts";

/** Larger pictures are refused by common model APIs and end the conversation, so they are scaled down or cut. */
const sidePixelsMax = 7_900;
/** Models see no more than this of a picture, however many pixels it has. */
const pixelsMax = 4_000_000;
const jpegQuality = 75;
const retakesMax = 4;

export interface ScreenshotOptions {
  target: string | null;
  type: "png" | "jpeg" | "webp";
  fullPage: boolean;
  quality?: number;
  /** A picture with more bytes is taken again as JPEG, and smaller; null: no limit. */
  bytesMax: number | null;
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

/** Secrets that the page shows are dots while `draw` makes a picture of it. */
export async function withoutSecrets<T>(page: Page, deadline: Deadline, draw: () => Promise<T>): Promise<T> {
  const frames = [...page.frames.values()]
    .map((frame) => ({ frame, values: page.secrets.valuesAt(frame.url) }))
    .filter(({ values }) => values.length > 0);
  try {
    await Promise.all(frames.map(({ frame, values }) => frame.call("mask", [values], deadline.leftMs)));
    return await draw();
  } finally {
    for (const { frame } of frames) frame.call("mask", [[]], deadline.leftMs).catch(() => {});
  }
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
  return withoutSecrets(page, deadline, () => capture(page, area, options, deadline));
}

async function capture(
  page: Page,
  area: Area,
  options: ScreenshotOptions,
  deadline: Deadline,
): Promise<ScreenshotResult> {
  const { bytesMax, fullPage, target } = options;
  const cut = area.width > sidePixelsMax || area.height > sidePixelsMax;
  const width = Math.min(Math.ceil(area.width), sidePixelsMax);
  const height = Math.min(Math.ceil(area.height), sidePixelsMax);
  // One image pixel per CSS pixel, on every device.
  const ratio = page.pixelRatio;
  let scale = bytesMax === null ? 1 : Math.min(1, Math.sqrt(pixelsMax / (width * height)));
  let { type, quality } = options;
  for (let take = 0; ; take++) {
    const { data } = await page.session.send(
      "Page.captureScreenshot",
      {
        format: type,
        quality: type === "png" ? undefined : quality,
        clip: { x: area.x, y: area.y, width, height, scale: scale / ratio },
        captureBeyondViewport: fullPage || target !== null,
        optimizeForSpeed: true,
      },
      deadline.leftMs,
    );
    const bytes = (data.length * 3) / 4;
    const picture = { base64: data, mimeType: `image/${type}`, cut };
    if (bytesMax === null || bytes <= bytesMax || take >= retakesMax)
      return { ...picture, width: Math.round(width * scale), height: Math.round(height * scale) };
    if (type === "png") {
      type = "jpeg";
      quality = jpegQuality;
    } else scale *= Math.max(0.3, Math.min(0.9, Math.sqrt(bytesMax / bytes)));
  }
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
