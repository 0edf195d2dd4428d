import { type ChargedLine, isCharged, LINE_FIELDS, type RequestLine } from "../../../kernel/request-row.ts";

/** One ended request, in the journal as `<crc32 in hex> <JSON array>`; the checksum detects truncated lines. */
export interface JournalEntry extends RequestLine {
  costMultiplierMicros: number;
  /** What was reserved for it, to be released once the row is in the database. */
  hold: HoldKind;
  /** The user's tier at admission; null: looked up when the row is settled. */
  tier: string | null;
  /** Budgets of the key in which the cost counts: bits as in `budgetsOf`. */
  budgets: number;
}

export type ChargedEntry = JournalEntry & ChargedLine;

/** Free and unpriced requests take no points. */
export const takesPoints = (entry: JournalEntry): entry is ChargedEntry =>
  isCharged(entry) && entry.costNanoUsd !== null && entry.costNanoUsd > 0;

export type HoldKind = "points" | "quota" | "none";

const FORMAT = 2;
const CRC_LENGTH = 8;
const NEWLINE = 10;

const FIELDS = [...LINE_FIELDS, "costMultiplierMicros", "hold", "tier", "budgets", "unpriced"] as const;

const OPTIONAL_FIELDS: ReadonlySet<string> = new Set(
  "cachedTokens cacheWriteTokens reasoningTokens cacheSavedNanoUsd unpriced".split(" "),
);

const crcHex = (json: string): string => Bun.hash.crc32(json).toString(16).padStart(CRC_LENGTH, "0");

export function encodeEntry(entry: JournalEntry): string {
  const values: unknown[] = [FORMAT];
  // The runtime stringifies a list with `undefined` four times slower.
  for (const field of FIELDS) values.push(entry[field] ?? null);
  const json = JSON.stringify(values);
  return `${crcHex(json)} ${json}\n`;
}

/** The entry of a line without its newline; null if the line is incomplete or in another format. */
function decodeLine(line: string): JournalEntry | null {
  if (line.length <= CRC_LENGTH + 1) return null;
  const json = line.slice(CRC_LENGTH + 1);
  if (line.slice(0, CRC_LENGTH) !== crcHex(json)) return null;
  const values: unknown = JSON.parse(json);
  if (!Array.isArray(values) || values[0] !== FORMAT || values.length !== FIELDS.length + 1) return null;
  const entry: Partial<Record<keyof JournalEntry, unknown>> = {};
  for (let i = 0; i < FIELDS.length; i++) {
    const [field, value] = [FIELDS[i]!, values[i + 1]];
    if (value !== null || !OPTIONAL_FIELDS.has(field)) entry[field] = value;
  }
  return entry as unknown as JournalEntry;
}

export interface Decoded {
  entries: JournalEntry[];
  damaged: string[];
  /** Bytes up to the end of the last whole line that was read. */
  length: number;
}

/** Reads the whole lines of `bytes`, at most `rowsMax` of them. */
export function decodeLines(bytes: Buffer, rowsMax: number): Decoded {
  let length = 0;
  for (let rows = 0; rows < rowsMax; rows++) {
    const newline = bytes.indexOf(NEWLINE, length);
    if (newline === -1) break;
    length = newline + 1;
  }
  const result: Decoded = { entries: [], damaged: [], length };
  if (length === 0) return result;
  // Decode all lines at once: a view and a string per line cost more than their contents.
  for (const line of bytes.toString("utf8", 0, length - 1).split("\n")) {
    const entry = decodeLine(line);
    if (entry) result.entries.push(entry);
    else result.damaged.push(line);
  }
  return result;
}
