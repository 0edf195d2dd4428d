import type { Picture } from "./chat.ts";
import { plural } from "./format.ts";

export interface Attachment {
  name: string;
  text: string;
}

export interface Attached {
  pictures: readonly Picture[];
  files: readonly Attachment[];
}
export const NOTHING_ATTACHED: Attached = { pictures: [], files: [] };

export const ATTACHED_MAX = 8;
/** The management plane takes calls up to 1 MiB. */
export const ATTACHED_BYTES_MAX = 700 * 1024;

function readAsDataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Text in any encoding but UTF-8, and everything that is not text, decodes with this in it. */
const isText = (text: string) => !text.includes("\0") && !text.includes("\uFFFD");

export class CannotAttach extends Error {}

/** What is attached with these files added; throws the reason why they cannot be. */
export async function withFiles(before: Attached, files: readonly File[]): Promise<Attached> {
  const pictures = [...before.pictures];
  const texts = [...before.files];
  for (const file of files) {
    if (file.size > ATTACHED_BYTES_MAX)
      throw new CannotAttach(
        `${file.name} is too large: at most ${ATTACHED_BYTES_MAX / 1024} KB can be attached.`,
      );
    if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
      pictures.push({ name: file.name, dataUrl: await readAsDataUrl(file) });
      continue;
    }
    const text = await file.text();
    if (!isText(text))
      throw new CannotAttach(`${file.name} is neither an image nor text; only these can be attached.`);
    texts.push({ name: file.name, text });
  }
  if (pictures.length + texts.length > ATTACHED_MAX)
    throw new CannotAttach(`At most ${plural(ATTACHED_MAX, "file")} can be attached.`);
  const bytes =
    pictures.reduce((sum, { dataUrl }) => sum + dataUrl.length, 0) +
    texts.reduce((sum, { text }) => sum + text.length, 0);
  if (bytes > ATTACHED_BYTES_MAX)
    throw new CannotAttach(`These files are too large together: at most ${ATTACHED_BYTES_MAX / 1024} KB.`);
  return { pictures, files: texts };
}

const FENCE = "~~~~~~";
const BLOCK = /\n\nAttached file: ([^\n]+)\n~~~~~~\n([\s\S]*?)\n~~~~~~(?=\n\nAttached file: |$)/g;

/** Text files travel inside the message, where every model can read them. */
export const withAttachments = (text: string, files: readonly Attachment[]): string =>
  text +
  files.map(({ name, text: inside }) => `\n\nAttached file: ${name}\n${FENCE}\n${inside}\n${FENCE}`).join("");

/** The message as it was typed and the files that travelled inside it. */
export function splitAttachments(message: string): { text: string; files: Attachment[] } {
  const files = [...message.matchAll(BLOCK)].map(([, name, text]) => ({ name: name!, text: text! }));
  return { text: message.replace(BLOCK, ""), files };
}
