/**
 * One finished request as the journal keeps it: a line of `<crc32 in hex> <JSON array>`. The checksum tells a
 * line that a crash or a full disk cut short from one that is whole.
 */
export interface JournalEntry {
  requestId: string;
  userId: string;
  keyId: string | null;
  attribution: string;
  project: string | null;
  groupId: string | null;
  costMultiplierMicros: number;
  model: string;
  backend: string;
  promptTokens: number;
  completionTokens: number;
  costNanoUsd: number | null;
  refId: string | null;
  estimated: boolean;
  /** When the request finished, milliseconds since the epoch. */
  atMs: number;
  /** What the admission had reserved; the same is given back once the row is in the database. */
  hold: HoldKind;
  /** The user's tier when the request was admitted; null in lines of earlier versions. */
  tier: string | null;
  /** Budgets of the key in which the cost counts, as `budgetsOf` says; 0 in lines of earlier versions. */
  budgets: number;
}

/** What costs nothing, or has no price, takes no points. */
export const takesPoints = ({ costNanoUsd }: JournalEntry): boolean =>
  costNanoUsd !== null && costNanoUsd > 0;

export type HoldKind = "points" | "quota" | "none";

const FORMAT = 1;
const CRC_LENGTH = 8;
const NEWLINE = 10;

const crcHex = (json: string): string => Bun.hash.crc32(json).toString(16).padStart(CRC_LENGTH, "0");

/** The fields of a line in their order; the types are those that `encodeEntry` wrote. */
type Fields = [
  format: number,
  requestId: string,
  userId: string,
  keyId: string | null,
  attribution: string,
  project: string | null,
  groupId: string | null,
  costMultiplierMicros: number,
  model: string,
  backend: string,
  promptTokens: number,
  completionTokens: number,
  costNanoUsd: number | null,
  refId: string | null,
  estimated: boolean,
  atMs: number,
  hold: HoldKind,
  tier?: string | null,
  budgets?: number,
];

export function encodeEntry(entry: JournalEntry): string {
  const fields: Fields = [
    FORMAT,
    entry.requestId,
    entry.userId,
    entry.keyId,
    entry.attribution,
    entry.project,
    entry.groupId,
    entry.costMultiplierMicros,
    entry.model,
    entry.backend,
    entry.promptTokens,
    entry.completionTokens,
    entry.costNanoUsd,
    entry.refId,
    entry.estimated,
    entry.atMs,
    entry.hold,
    entry.tier,
  ];
  // Most keys have no budget: their lines are as short as they were.
  if (entry.budgets > 0) fields.push(entry.budgets);
  const json = JSON.stringify(fields);
  return `${crcHex(json)} ${json}\n`;
}

/** The entry of a line without its newline; null when the line is not whole or not ours. */
function decodeLine(line: string): JournalEntry | null {
  if (line.length <= CRC_LENGTH + 1) return null;
  const json = line.slice(CRC_LENGTH + 1);
  if (line.slice(0, CRC_LENGTH) !== crcHex(json)) return null;
  const fields = JSON.parse(json) as Fields;
  if (fields[0] !== FORMAT) return null;
  return {
    requestId: fields[1],
    userId: fields[2],
    keyId: fields[3],
    attribution: fields[4],
    project: fields[5],
    groupId: fields[6],
    costMultiplierMicros: fields[7],
    model: fields[8],
    backend: fields[9],
    promptTokens: fields[10],
    completionTokens: fields[11],
    costNanoUsd: fields[12],
    refId: fields[13],
    estimated: fields[14],
    atMs: fields[15],
    hold: fields[16],
    tier: fields[17] ?? null,
    budgets: fields[18] ?? 0,
  };
}

export interface Decoded {
  entries: JournalEntry[];
  /** Whole lines that are damaged, as they stand. */
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
