/** Text of PDF documents. Chromium shows them in a viewer whose own document holds nothing but the buttons around the pages. */
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import { createYaml } from "./inpage/yaml.ts";
import type { Page } from "./page.ts";

const viewerUrl = "chrome-extension://mhjfbmdgcfjbbpaeojofohoefgiehjai/";
/** Less than what a call to a frame may take. */
const viewerMsMax = 2_500;

export interface PdfText {
  title: string;
  pages: number;
  /** The part of the text that was asked for. */
  text: string;
  totalChars: number;
}

export function isPdfViewer(frame: Frame): boolean {
  return frame.url.startsWith(viewerUrl);
}

/** The viewer arrives some time after the document that it shows has loaded. */
export async function viewerBelow(page: Page, frame: Frame, deadline: Deadline): Promise<void> {
  const isThere = () =>
    [...page.frames.values()].some(
      (each) => each.parentId === frame.id && isPdfViewer(each) && each.mainContextId !== null,
    );
  await page.until(isThere, Math.min(viewerMsMax, deadline.restMs));
}

/** Null when this viewer does not tell, as when it asks for a password. */
export async function readPdf(
  frame: Frame,
  { offset, charsMax }: { offset: number; charsMax: number },
  deadline: Deadline,
): Promise<PdfText | null> {
  if (frame.mainContextId === null) return null;
  const waitMs = Math.min(viewerMsMax, deadline.restMs);
  const { result } = await frame.session.send(
    "Runtime.evaluate",
    {
      expression: `(${readInViewer})(${offset}, ${charsMax}, ${waitMs})`,
      contextId: frame.mainContextId,
      awaitPromise: true,
      returnByValue: true,
    },
    deadline.leftMs,
  );
  return (result.value as PdfText | null | undefined) ?? null;
}

const { asKey, asValue } = createYaml();

/** Lines of a snapshot; what does not fit can be asked for by the ref of the frame, with an offset in characters. */
export function pdfLines(
  { title, pages, text, totalChars }: PdfText,
  { ref, offset, charsMax }: { ref: string; offset: number; charsMax: number },
): { lines: string[]; truncated: boolean } {
  const name = title ? ` ${JSON.stringify(title)}` : "";
  const lines = [`- ${asKey(`document${name} [pages=${pages}]`)}:`];
  if (totalChars === 0)
    return { lines: [...lines, '  - text: "No text, only pictures; take a screenshot."'], truncated: false };
  let chars = lines[0]!.length;
  let shown = 0;
  for (const line of text.split("\n")) {
    const written = `  - text: ${asValue(line.trim())}`;
    if (line.trim()) {
      if (chars + written.length + 1 > charsMax) break;
      lines.push(written);
      chars += written.length + 1;
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
  pdfTitle?: string;
}

interface PluginController {
  selectAll(): void;
  getSelectedText(): Promise<{ selectedText: string }>;
  setPresentationMode(isOn: boolean): void;
}

/** Runs in the viewer: selects everything, reads the selection, and takes it away again. */
async function readInViewer(offset: number, charsMax: number, waitMs: number): Promise<PdfText | null> {
  const pollMs = 25;
  const until = performance.now() + waitMs;
  const viewer = () => document.querySelector<Viewer>("pdf-viewer");
  while (viewer()?.loadProgress_ !== 100 || !viewer()?.docLength_) {
    if (performance.now() > until) return null;
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
