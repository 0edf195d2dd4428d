import { api } from "./api.ts";
import {
  type Answer,
  followChat,
  isRunning,
  NEW_ANSWER,
  type Picture,
  runChat,
  userMessage,
} from "./chat.ts";
import { invalidate } from "./query.ts";
import { Store } from "./store.ts";

/** One turn of a conversation that was sent from this tab: it goes on while other pages are looked at. */
export interface ConversationTurn {
  text: string;
  pictures: readonly Picture[];
  answer: Answer;
}

type Turns = Readonly<Record<string, ConversationTurn>>;

const KEY = "model-gateway.turns";
/** After a reload: how often the conversation is asked whether its answer is there, and how many times. */
const LOOK_EVERY_MS = 1_000;
const LOOKS_MAX = 30;

export const turns = new Store<Turns>({});
const aborters = new Map<string, AbortController>();

function put(id: string, turn: ConversationTurn | null): void {
  const { [id]: _, ...others } = turns.get();
  turns.set(turn ? { ...others, [id]: turn } : others);
}

const setAnswer = (id: string) => (answer: Answer) => {
  const turn = turns.get()[id];
  if (turn) put(id, { ...turn, answer });
};

function refresh(id: string): void {
  invalidate(`conversation ${id}`);
  invalidate("conversations");
}

export interface TurnToSend {
  id: string;
  model: string;
  text: string;
  pictures: readonly Picture[];
}

export async function sendTurn({ id, model, text, pictures }: TurnToSend): Promise<void> {
  const aborter = new AbortController();
  aborters.set(id, aborter);
  put(id, { text, pictures, answer: NEW_ANSWER });
  const request = { model, messages: [userMessage(text, pictures)], conversation_id: id };
  await runChat({ request, signal: aborter.signal, onChange: setAnswer(id) });
  refresh(id);
}

/** Takes up the rest of an answer whose connection was lost. */
export function goOnWithTurn(id: string): void {
  const turn = turns.get()[id];
  if (turn?.answer.streamId)
    void resume(id, { ...turn, answer: { ...turn.answer, state: "streaming" } }, turn.answer.streamId);
}

export const stopTurn = (id: string): void => aborters.get(id)?.abort();

export const forgetTurn = (id: string): void => {
  stopTurn(id);
  put(id, null);
};

/** Waits until the answer is among the stored messages: its end may have come while the page was loading. */
async function whenStored(id: string, text: string, signal: AbortSignal): Promise<boolean> {
  for (let looks = 0; looks < LOOKS_MAX && !signal.aborted; looks++) {
    const stored = await api("conversations.get", { conversation_id: id }).catch(() => null);
    const [asked, answered] = stored?.messages.slice(-2) ?? [];
    if (asked?.content === text && answered?.role === "assistant") return true;
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
  }
  return false;
}

async function resume(id: string, turn: ConversationTurn, streamId: string): Promise<void> {
  const aborter = new AbortController();
  aborters.set(id, aborter);
  put(id, turn);
  const listening = new AbortController();
  aborter.signal.addEventListener("abort", () => listening.abort());
  const followed = followChat(
    { ...turn.answer, streamId },
    { signal: listening.signal, onChange: (answer) => !listening.signal.aborted && setAnswer(id)(answer) },
  );
  const isStored = await Promise.race([
    followed.then(() => false),
    whenStored(id, turn.text, listening.signal),
  ]);
  listening.abort();
  const answer = turns.get()[id]?.answer;
  // The stored answer is whole, also where this page missed some of it.
  if (isStored || answer?.state === "done") put(id, null);
  else if (answer && isRunning(answer)) setAnswer(id)({ ...answer, state: "stopped" });
  refresh(id);
}

interface Kept {
  id: string;
  turn: ConversationTurn;
}

/** What is under way is written down when the page goes, and taken up again when it comes back. */
export function keepTurnsOverReloads(): void {
  addEventListener("pagehide", () => {
    const running: Kept[] = Object.entries(turns.get())
      .filter(([, { answer }]) => isRunning(answer) && answer.streamId !== null)
      .map(([id, turn]) => ({ id, turn: { ...turn, pictures: [] } }));
    if (running.length > 0) sessionStorage.setItem(KEY, JSON.stringify(running));
  });
  const kept = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  if (kept === null) return;
  for (const { id, turn } of JSON.parse(kept) as Kept[]) void resume(id, turn, turn.answer.streamId!);
}
