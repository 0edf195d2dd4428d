/** The aria snapshot of a page: each frame writes its own part, and the parts are put together here. */
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { SnapshotAnswer } from "./inpage/contract.ts";
import { adoptListening } from "./listeners.ts";
import type { Page } from "./page.ts";
import { isPdfViewer, type PdfPart, pdfLines, readPdf, stillLoading, viewerArrives } from "./pdf.ts";
import { askFrame, frameHolding } from "./search.ts";
import { adoptClosedRoots } from "./shadow.ts";
import { notFound } from "./targets.ts";

export interface SnapshotOptions {
  target: string | null;
  offset: number;
  depth: number;
  boxes: boolean;
  charsMax: number;
  /** It comes along with another result. */
  terse: boolean;
  /** Only branches that hold this text. */
  find: string | null;
}

export interface SnapshotResult {
  yaml: string;
  truncated: boolean;
  url: string;
  title: string;
}

/** Part of the space that a document with frames may use for itself; the frames share what is left. */
const ownShare = 0.6;
const frameCharsMin = 400;
const framesDepthMax = 8;

export async function snapshot(
  page: Page,
  options: SnapshotOptions,
  deadline: Deadline,
): Promise<SnapshotResult> {
  const frame = options.target === null ? page.mainFrame : await frameHolding(page, options.target, deadline);
  const request = { ...options, depthLeft: framesDepthMax, indentChars: 0 };
  const whole = await frameSnapshot(page, frame, request, deadline);
  if (!whole.found) throw notFound(options.target!);
  return { yaml: whole.lines.join("\n"), truncated: whole.truncated, url: whole.url, title: whole.title };
}

interface FrameRequest extends SnapshotOptions {
  depthLeft: number;
  /** By how much its lines are moved to the right in the end. */
  indentChars: number;
}

async function frameSnapshot(
  page: Page,
  frame: Frame,
  request: FrameRequest,
  deadline: Deadline,
): Promise<SnapshotAnswer> {
  const hasFrames = [...page.frames.values()].some((each) => each.parentId === frame.id);
  const ask = () =>
    frame.call(
      "snapshot",
      [
        {
          target: request.target,
          offset: request.offset,
          depthMax: request.depth,
          boxes: request.boxes,
          terse: request.terse,
          indentChars: request.indentChars,
          find: request.find,
          charsMax: hasFrames ? Math.floor(request.charsMax * ownShare) : request.charsMax,
        },
      ],
      deadline.leftMs,
    );
  let own = await ask();
  if (own.isPdf && (await viewerArrives(page, frame, deadline))) own = await ask();
  if (own.hosts > 0 && (await adoptClosedRoots(frame, own.isSmall, deadline)) > 0) own = await ask();
  if (own.silent > 0 && (await adoptListening(frame, own.silent, deadline)) > 0) own = await ask();
  if (own.frames.length > 0 && request.depthLeft > 0) await stitchFrames(page, frame, own, request, deadline);
  return own;
}

/** Puts each inner frame's lines below the line of its element, last one first so that positions stay right. */
async function stitchFrames(
  page: Page,
  frame: Frame,
  own: SnapshotAnswer,
  request: FrameRequest,
  deadline: Deadline,
) {
  let charsLeft = request.charsMax - own.chars;
  const inner: { line: number; depth: number; lines: string[] }[] = [];
  for (const [index, { ref, line, depth }] of own.frames.entries()) {
    const share = Math.floor(charsLeft / (own.frames.length - index));
    if (share < frameCharsMin) {
      own.truncated = true;
      inner.push({ line, depth, lines: [`- /more: "not shown, see browser_snapshot ${quoted(ref)}"`] });
      continue;
    }
    const child = await childFrame(page, frame, ref, deadline);
    if (!child) {
      inner.push({ line, depth, lines: own.isPdf ? [stillLoading] : [] });
      continue;
    }
    const inside = {
      ...request,
      target: null,
      offset: 0,
      charsMax: share,
      depthLeft: request.depthLeft - 1,
      indentChars: request.indentChars + 2 * depth,
    };
    // A frame has no children that could be counted, so an offset into it is one into its text.
    const offset = request.target === null ? 0 : request.offset;
    const pdf = { ref, offset, charsMax: share, indentChars: inside.indentChars };
    const answer = await askFrame(
      page,
      child,
      deadline,
      async (limited) =>
        (await pdfSnapshot(child, pdf, limited)) ?? frameSnapshot(page, child, inside, limited),
    );
    // A frame that goes away while it is read is left empty.
    inner.push({ line, depth, lines: answer?.lines ?? (child.isSilent ? [silentFrame] : []) });
    charsLeft -= answer?.chars ?? 0;
    own.truncated ||= answer?.truncated ?? false;
  }
  const find = request.find?.trim().toLowerCase();
  for (const { line, depth, lines } of inner.toReversed()) {
    const head = own.lines[line - 1]!;
    if (lines.length > 0) {
      own.lines[line - 1] += ":";
      own.lines.splice(line, 0, ...lines.map((text) => "  ".repeat(depth) + text));
    } else if (find !== undefined && !head.toLowerCase().includes(find)) dropFrame(own.lines, line);
  }
  own.chars = own.lines.reduce((sum, line) => sum + request.indentChars + line.length + 1, 0);
}

/** Takes out a frame without a match, and what held nothing but it. */
function dropFrame(lines: string[], frameLine: number): void {
  const indentAt = (index: number) => lines[index]?.search(/\S/) ?? -1;
  let at = frameLine - 1;
  do lines.splice(at--, 1);
  while (lines[at]?.endsWith(":") && indentAt(at + 1) <= indentAt(at));
}

type FrameLines = Pick<SnapshotAnswer, "lines" | "chars" | "truncated">;

async function pdfSnapshot(frame: Frame, part: PdfPart, deadline: Deadline): Promise<FrameLines | null> {
  const pdf = isPdfViewer(frame) ? await readPdf(frame, part, deadline) : null;
  if (!pdf) return null;
  if (pdf === "loading") return { lines: [stillLoading], truncated: true, chars: stillLoading.length };
  const { lines, truncated } = pdfLines(pdf, part);
  return {
    lines,
    truncated,
    chars: lines.reduce((sum, line) => sum + part.indentChars + line.length + 1, 0),
  };
}

const silentFrame = '- /more: "not shown, the frame does not respond; take the snapshot again"';
const quoted = (target: string) => JSON.stringify({ target }).replace(/"/g, '\\"');

async function childFrame(page: Page, frame: Frame, ref: string, deadline: Deadline): Promise<Frame | null> {
  const objectId = await frame.callForObject("element", [ref], deadline.leftMs);
  if (!objectId) return null;
  const { node } = await frame.session.send("DOM.describeNode", { objectId }, deadline.leftMs);
  return (node.frameId && page.frames.get(node.frameId)) || null;
}
