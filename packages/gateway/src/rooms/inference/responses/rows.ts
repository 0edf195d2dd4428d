import { isoTime } from "../../../kernel/clock.ts";

/** A turn as it waits to be stored. */
export interface KeptTurn {
  /** The request's. */
  id: string;
  userId: string;
  previousId: string | null;
  /** JSON of `{ input, response }`. */
  json: string;
}

/** One turn, or several of a user that were answered together and that nothing went on from. */
export interface ResponseRow {
  /** Of its first turn and its last, in the order of ids. */
  id: string;
  last_id: string;
  user_id: string;
  previous_id: string | null;
  /** Set once something went on from it. */
  conversation_id: string | null;
  /** How many turns; 0: one that was stored as chat messages. */
  turns: number;
  /** JSON of an array: the turns, or the chat messages. */
  content: string;
  /** JSON of what a response that goes on from others repeats of its request: it would count in each of them. */
  repeated: string | null;
  created_at: string;
}

/** A larger turn is a row of its own: whoever wants one turn of a row reads all of them. */
const SHARED_CHARS_MAX = 8 * 1024;
const ROW_CHARS_MAX = 256 * 1024;

export function rowOf(turns: readonly KeptTurn[], nowMs: number): ResponseRow {
  const { userId, previousId } = turns[0]!;
  let [first, last] = [turns[0]!.id, turns[0]!.id];
  for (const { id } of turns) {
    if (id < first) first = id;
    if (id > last) last = id;
  }
  return {
    id: first,
    last_id: last,
    user_id: userId,
    previous_id: previousId,
    conversation_id: null,
    turns: turns.length,
    // Postgres keeps no NUL in a text; in JSON it is always escaped.
    content: `[${turns.map(({ json }) => json).join(",")}]`,
    repeated: null,
    created_at: isoTime(nowMs),
  };
}

/** Turns as few rows. */
export function rowsOf(turns: readonly KeptTurn[], nowMs: number): ResponseRow[] {
  const groups: KeptTurn[][] = [];
  const open = new Map<string, { group: KeptTurn[]; chars: number }>();
  for (const turn of turns) {
    const { userId, previousId, json } = turn;
    const isAlone = previousId !== null || json.length > SHARED_CHARS_MAX;
    const shared = isAlone ? undefined : open.get(userId);
    if (shared && shared.chars + json.length <= ROW_CHARS_MAX) {
      shared.group.push(turn);
      shared.chars += json.length;
      continue;
    }
    const group = [turn];
    groups.push(group);
    if (!isAlone) open.set(userId, { group, chars: json.length });
  }
  return groups.map((group) => rowOf(group, nowMs));
}
