import { type ChargedLine, isCharged, LINE_FIELDS, type RequestLine } from "../../../kernel/request-row.ts";

/** One ended request as the journal keeps it: `<crc32 in hex> <JSON array>`; the checksum tells a cut line. */
export interface JournalEntry extends RequestLine {
  costMultiplierMicros: number;
  /** What the admission had reserved; the same is given back once the row is in the database. */
  hold: HoldKind;
  /** The user's tier when the request was admitted; null: to be looked up. */
  tier: string | null;
  /** Budgets of the key in which the cost counts, as `budgetsOf` says. */
  budgets: number;
}

export type ChargedEntry = JournalEntry & ChargedLine;

/** What costs nothing, or has no price, takes no points. */
export const takesPoints = (entry: JournalEntry): entry is ChargedEntry =>
  isCharged(entry) && entry.costNanoUsd !== null && entry.costNanoUsd > 0;

export type HoldKind = "points" | "quota" | "none";

const FORMAT = 2;
const CRC_LENGTH = 8;
const NEWLINE = 10;

const FIELDS = [...LINE_FIELDS, "costMultiplierMicros", "hold", "tier", "budgets", "unpriced"] as const;

const OPTIONAL_FIELDS: ReadonlySet<string> = new Set([
  ...["cachedTokens", "cacheWriteTokens", "reasoningTokens", "cacheSavedNanoUsd", "unpriced"],
]);

const crcHex = (json: string): string => Bun.hash.crc32(json).toString(16).padStart(CRC_LENGTH, "0");

export function encodeEntry(entry: JournalEntry): string {
  const values: unknown[] = [FORMAT];
  // The runtime writes a list with `undefined` in it four times as slowly.
  for (const field of FIELDS) values.push(entry[field] ?? null);
  const json = JSON.stringify(values);
  return `${crcHex(json)} ${json}\n`;
}

/** The entry of a line without its newline; null when the line is not whole or not ours. */
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

/** Reads the whole lines of `bytes`, at most `rowsMax` of them; what follows the last newline is left alone. */
export function decodeLines(bytes: Buffer, rowsMax: number): Decoded {
  const length = endOfLines(bytes, rowsMax);
  const result: Decoded = { entries: [], damaged: [], length };
  if (length === 0) return result;
  // All lines become text at once: a view and a text of each cost more than what is in it.
  for (const line of bytes.toString("utf8", 0, length - 1).split("\n")) {
    const entry = decodeLine(line);
    if (entry) result.entries.push(entry);
    else result.damaged.push(line);
  }
  return result;
}

function endOfLines(bytes: Buffer, rowsMax: number): number {
  let end = 0;
  for (let rows = 0; rows < rowsMax; rows++) {
    const newline = bytes.indexOf(NEWLINE, end);
    if (newline === -1) break;
    end = newline + 1;
  }
  return end;
}
