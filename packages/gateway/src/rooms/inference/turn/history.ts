import { isObject } from "../../../kernel/json.ts";
import type { StoredMessage } from "../../conversations/index.ts";
import { textOf, toStored } from "./messages.ts";

type HistoryMessage = Record<string, unknown>;

const PARAGRAPH = "\n\n";
/** Placeholder for a missing tool result: upstreams refuse a call without one. */
const NO_RESULT = "(no result)";
/** Put before a conversation that begins with an answer, e.g. from a voice session. */
const OPENING = "(continued)";

const isSystem = ({ role }: { role?: unknown }) => role === "system" || role === "developer";
const callsOf = ({ tool_calls }: { tool_calls?: unknown }): HistoryMessage[] =>
  Array.isArray(tool_calls) ? tool_calls.filter((call) => isObject(call) && typeof call.id === "string") : [];

/** What a request adds to its conversation, and what is sent for it. */
export interface Continuation {
  added: StoredMessage[];
  /** The whole conversation, in an order that every upstream accepts. */
  sequence: HistoryMessage[];
}

/** Continues a stored conversation. Messages both at its end and at the request's beginning are kept once. */
export function continueWith(
  stored: readonly StoredMessage[],
  sent: readonly HistoryMessage[],
  {
    sentIsWhole,
  }: {
    /** The request has the whole conversation; only what follows its last answer is new. */ sentIsWhole: boolean;
  },
): Continuation {
  const turns = sent.filter((message) => !isSystem(message));
  const fresh = sentIsWhole
    ? turns.slice(turns.findLastIndex(({ role }) => role === "assistant") + 1)
    : turns;
  const known = stored.filter((message) => !isSystem(message));
  const added = fresh.slice(overlap(known, fresh.map(toStored)));
  const systems = sent.filter(isSystem);
  const storedSystems = lastRunOfSystems(stored);
  const isNewSystem = systems.length > 0 && textIn(systems) !== textIn(storedSystems);
  return {
    added: [...(isNewSystem ? systems : []), ...added].map(toStored),
    sequence: [
      ...oneSystem(systems.length > 0 ? systems : storedSystems.map(fromStored)),
      // Converted as if read from storage, so that the next turn sends the same bytes.
      ...inOrder(
        known.map(fromStored),
        added.map((message) => fromStored(toStored(message))),
      ),
    ],
  };
}

const textIn = (messages: readonly { content?: unknown }[]): string =>
  messages.map(({ content }) => textOf(content)).join(PARAGRAPH);

/** How many messages at the end of `known` are also the beginning of `fresh`. */
function overlap(known: readonly StoredMessage[], fresh: readonly StoredMessage[]): number {
  const head = fresh.map(signOf);
  // Knuth-Morris-Pratt: borders[i] is the length of the longest proper prefix of head[0..i] that is also its suffix.
  const borders = [0];
  const longer = (matched: number, sign: string): number => {
    while (matched > 0 && (matched === head.length || head[matched] !== sign))
      matched = borders[matched - 1]!;
    return head[matched] === sign ? matched + 1 : 0;
  };
  for (let i = 1; i < head.length; i++) borders.push(longer(borders[i - 1]!, head[i]!));
  return known
    .slice(-fresh.length || known.length)
    .reduce((matched, each) => longer(matched, signOf(each)), 0);
}

/** Equal for equal messages. */
const signOf = (message: StoredMessage): string => {
  const { role, content, tool_call_id, parts, images } = message;
  return JSON.stringify([role, content, tool_call_id, parts, images, callsOf(message).map(({ id }) => id)]);
};

/** The latest system prompt, which may consist of several messages. */
function lastRunOfSystems(stored: readonly StoredMessage[]): StoredMessage[] {
  const end = stored.findLastIndex(isSystem) + 1;
  let start = end;
  while (start > 0 && isSystem(stored[start - 1]!)) start--;
  return stored.slice(start, end);
}

/** Some models accept only one system message. */
function oneSystem(systems: readonly HistoryMessage[]): HistoryMessage[] {
  if (systems.length <= 1) return [...systems];
  return [{ role: systems[0]!.role, content: textIn(systems) }];
}

function fromStored({
  role,
  content,
  parts,
  images,
  tool_calls,
  tool_call_id,
}: StoredMessage): HistoryMessage {
  const isCallOnly = content === "" && tool_calls !== undefined;
  return {
    role,
    content: parts ?? (isCallOnly ? null : content),
    ...(images && { images }),
    ...(tool_calls && { tool_calls }),
    ...(tool_call_id !== undefined && { tool_call_id }),
  };
}

/** Puts results right behind their calls, drops empty answers and joins consecutive user texts. */
function inOrder(known: readonly HistoryMessage[], added: readonly HistoryMessage[]): HistoryMessage[] {
  const all = [...known, ...added];
  const results = Map.groupBy(
    all.filter(({ role }) => role === "tool").reverse(),
    ({ tool_call_id }) => tool_call_id,
  );
  const used = new Set<HistoryMessage>();
  const sequence: HistoryMessage[] = [];
  for (const message of all) {
    if (message.role === "tool") continue;
    const calls = message.role === "assistant" ? callsOf(message) : [];
    if (message.role === "assistant" && calls.length === 0 && textOf(message.content) === "") continue;
    if (!mergeUser(sequence, message)) sequence.push(message);
    for (const { id } of calls) {
      const result = results.get(id)?.pop();
      if (result) used.add(result);
      sequence.push(result ?? { role: "tool", tool_call_id: id, content: NO_RESULT });
    }
  }
  // A result without a call is the client's mistake; let the upstream report it.
  sequence.push(...added.filter((message) => message.role === "tool" && !used.has(message)));
  if (sequence[0]?.role === "assistant") sequence.unshift({ role: "user", content: OPENING });
  return sequence;
}

/** Joins an unanswered question and the next one: many chat templates reject two user messages in a row. */
function mergeUser(sequence: HistoryMessage[], message: HistoryMessage): boolean {
  const last = sequence.at(-1);
  const isPlain = (each: HistoryMessage | undefined): each is HistoryMessage & { content: string } =>
    each?.role === "user" && typeof each.content === "string" && each.images === undefined;
  if (!isPlain(last) || !isPlain(message)) return false;
  sequence[sequence.length - 1] = { ...last, content: last.content + PARAGRAPH + message.content };
  return true;
}
