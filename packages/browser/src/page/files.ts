/** Files for the page: to a file field, to the chooser that the page has opened, or dropped on an element. */
import { realpathSync, statSync } from "node:fs";
import { resolve, sep } from "node:path";
import { ToolError } from "../errors.ts";
import { aim } from "./actions.ts";
import type { Deadline } from "./deadline.ts";
import type { Frame } from "./frame.ts";
import type { Page } from "./page.ts";
import { frameHolding } from "./search.ts";
import { type ActionResult, conclude, stateBefore } from "./settle.ts";
import { notFound } from "./targets.ts";

/** How long a click is given to open a file chooser. */
const chooserWaitMsMax = 1_000;

export interface UploadOptions {
  /** Null: the file chooser that is open. */
  target: string | null;
  files: string[];
  /** The only folder that files are taken from; null: none. */
  uploads: string | null;
}

/** Real paths of files inside of the folder; a link that leads out of it is outside. */
function checkFiles(files: string[], uploads: string | null): string[] {
  if (uploads === null)
    throw new ToolError(
      "forbidden",
      "No files may be given to pages. Start the tool with --uploads <dir> and name files in that folder.",
    );
  let root: string;
  try {
    root = realpathSync(uploads);
  } catch {
    throw new ToolError("not_found", `The folder given with --uploads, ${uploads}, is not there.`);
  }
  return files.map((file) => {
    let path = resolve(uploads, file);
    // The folder may be named through a link.
    const isNamed = [root, resolve(uploads)].some((folder) => path.startsWith(folder + sep));
    try {
      if (isNamed) path = realpathSync(path);
    } catch {
      throw new ToolError("not_found", `There is no file "${file}" in ${uploads}.`);
    }
    if (!path.startsWith(root + sep))
      throw new ToolError(
        "forbidden",
        `"${file}" is outside of ${uploads}, the folder given with --uploads.`,
      );
    if (!statSync(path).isFile()) throw new ToolError("invalid_request", `"${file}" is not a file.`);
    return path;
  });
}

async function setFiles(frame: Frame, objectId: string, files: string[], deadline: Deadline): Promise<void> {
  try {
    await frame.session.send("DOM.setFileInputFiles", { objectId, files }, deadline.leftMs);
  } finally {
    frame.session.tell("Runtime.releaseObject", { objectId });
  }
}

async function answerChooser(page: Page, files: string[], deadline: Deadline): Promise<void> {
  const { session, backendNodeId, takesSeveral } = page.fileChooser!;
  if (files.length > 1 && !takesSeveral)
    throw new ToolError("invalid_request", `The page asks for one file, not ${files.length}.`);
  page.fileChooser = null;
  await session.send("DOM.setFileInputFiles", { backendNodeId, files }, deadline.leftMs);
}

/** A click that opens a chooser is answered there; where none opens, the files are dropped on the element. */
async function clickOrDrop(page: Page, target: string, files: string[], deadline: Deadline): Promise<Frame> {
  page.fileChooser = null;
  const options = { target, position: null, clicks: 1 };
  const { frame, place } = await aim(page, options, { purpose: "click", attempt: 0 }, deadline);
  if (!place) throw new ToolError("element_not_actionable", `"${target}" takes no files.`);
  page.isChooserExpected = true;
  try {
    await page.pointer.click(place, { button: "left", modifiers: [], clicks: 1 }, deadline.leftMs);
    await page.until(() => page.fileChooser !== null, Math.min(chooserWaitMsMax, deadline.restMs));
  } finally {
    page.isChooserExpected = false;
  }
  if (page.fileChooser) await answerChooser(page, files, deadline);
  else await page.pointer.dropFiles(place, files, deadline.leftMs);
  return frame;
}

export async function upload(page: Page, options: UploadOptions, deadline: Deadline): Promise<ActionResult> {
  const { target, uploads } = options;
  const files = checkFiles(options.files, uploads);
  const before = await stateBefore(page, deadline);
  await page.mainFrame.call("prepare", [], deadline.leftMs);
  if (target === null) {
    if (!page.fileChooser)
      throw new ToolError(
        "invalid_request",
        "The page has opened no file chooser. Click what opens it first, or give the file field as target.",
      );
    await answerChooser(page, files, deadline);
    return conclude(page, { before, frame: page.mainFrame, after: null, matches: 0 }, deadline);
  }
  let frame = await frameHolding(page, target, deadline);
  if (!(await frame.callForObject("element", [target], deadline.leftMs))) throw notFound(target);
  const field = await frame.callForObject("fileField", [target], deadline.leftMs);
  if (field) await setFiles(frame, field, files, deadline);
  else frame = await clickOrDrop(page, target, files, deadline);
  return conclude(page, { before, frame, after: null, matches: 1 }, deadline);
}
