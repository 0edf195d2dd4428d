/** Text of PDF documents. Chromium shows them in a viewer whose own document holds nothing but the buttons around the pages. */
import type { Deadline } from "./deadline.ts";
import { type Frame, isContextGone } from "./frame.ts";
import { createYaml } from "./inpage/yaml.ts";
import type { Page } from "./page.ts";

const viewerUrl = "chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/";
/** Less than what a call to a frame may take. */
const readMsMax = 2_000;
/** Kept back from the time of an operation that waits for the viewer. */
const reserveMs = 500;
export const stillLoading = '- /more: "the PDF is still loading; take the snapshot again"';

export interface PdfText {
  title: string;
  pages: number;
  /** The part of the text that was asked for. */
  text: string;
  totalChars: number;
}

export interface PdfPart {
  /** Of the frame that shows the document. */
  ref: string;
  /** First character of the text. */
  offset: number;
  charsMax: number;
  /** What each line grows by when it is put into the lines of the document around this one. */
  indentChars: number;
}

export function isPdfViewer(frame: Frame): boolean {
  return frame.url.startsWith(viewerUrl);
}

/** The viewer comes some time after the document that it is to show. True when it had to be waited for and came. */
export async function viewerArrives(page: Page, frame: Frame, deadline: Deadline): Promise<boolean> {
  const isThere = () =>
    [...page.frames.values()].some((each) => each.parentId === frame.id && isPdfViewer(each));
  return !isThere() && (await page.until(isThere, deadline.restMs - reserveMs));
}

/** Null when the viewer does not tell, "loading" when it is not ready in time. */
export async function readPdf(
  frame: Frame,
  part: PdfPart,
  deadline: Deadline,
): Promise<PdfText | "loading" | null> {
  while (deadline.restMs > reserveMs) {
    const waitMs = Math.min(readMsMax, deadline.restMs - reserveMs);
    const expression = `(${readInViewer})(${part.offset}, ${part.charsMax}, ${waitMs})`;
    try {
      // The viewer is a process of its own, whose session means its document when no other is named.
      const { result } = await frame.session.send(
        "Runtime.evaluate",
        { expression, awaitPromise: true, returnByValue: true },
        deadline.leftMs,
      );
      const answer = result.value as PdfText | "loading" | null | undefined;
      if (answer !== "loading") return answer ?? null;
    } catch (error) {
      if (!isContextGone(error)) throw error;
    }
  }
  return "loading";
}

const { asKey, asValue } = createYaml();

/** Lines of a snapshot; what does not fit can be asked for by the ref of the frame, with an offset in characters. */
export function pdfLines(
  { title, pages, text, totalChars }: PdfText,
  { ref, offset, charsMax, indentChars }: PdfPart,
): { lines: string[]; truncated: boolean } {
  const moreCharsMax = 120;
  const name = title ? ` ${JSON.stringify(title)}` : "";
  const lines = [`- ${asKey(`document${name} [pages=${pages}]`)}:`];
  if (totalChars === 0)
    return { lines: [...lines, '  - text: "No text, only pictures; take a screenshot."'], truncated: false };
  let chars = lines[0]!.length + moreCharsMax;
  let shown = 0;
  for (const line of text.split("\n")) {
    const written = `  - text: ${asValue(line.trim())}`;
    if (line.trim()) {
      chars += indentChars + written.length + 1;
      if (chars > charsMax) break;
      lines.push(written);
    }
    shown += line.length + 1;
  }
  const next = Math.min(offset + shown, totalChars);
  const left = totalChars - next;
  if (left <= 0) return { lines, truncated: false };
  const call = JSON.stringify({ target: ref, offset: next });
  lines.push(`  - /more: ${asValue(`${left} more characters not shown, see browser_snapshot ${call}`)}`);
  return { lines, truncated: true };
}

interface Viewer extends Element {
  loadProgress_?: number;
  docLength_?: number;
  showPasswordDialog_?: boolean;
  pdfTitle?: string;
}

interface PluginController {
  selectAll(): void;
  getSelectedText(): Promise<{ selectedText: string }>;
  setPresentationMode(isOn: boolean): void;
}

/** Runs in the viewer: selects everything, reads the selection, and takes it away again. */
async function readInViewer(
  offset: number,
  charsMax: number,
  waitMs: number,
): Promise<PdfText | "loading" | null> {
  const pollMs = 25;
  const until = performance.now() + waitMs;
  const viewer = () => document.querySelector<Viewer>("pdf-viewer");
  while (viewer()?.loadProgress_ !== 100 || !viewer()?.docLength_) {
    if (viewer()?.showPasswordDialog_) return null;
    if (performance.now() > until) return "loading";
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
  const wrapper = "./pdf_viewer_wrapper.js";
  const module = (await import(wrapper)) as { PluginController?: { getInstance(): PluginController } };
  const controller = module.PluginController?.getInstance();
  if (!controller) return null;
  controller.selectAll();
  const { selectedText } = await controller.getSelectedText();
  // Presenting begins without a selection.
  controller.setPresentationMode(true);
  controller.setPresentationMode(false);
  return {
    title: viewer()?.pdfTitle ?? "",
    pages: viewer()?.docLength_ ?? 0,
    text: selectedText.slice(offset, offset + charsMax),
    totalChars: selectedText.length,
  };
}
