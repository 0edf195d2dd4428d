import {
  type Answer,
  type ChatRun,
  type ChatTurnMessage,
  followChat,
  isRunning,
  NEW_ANSWER,
  type Picture,
  runChat,
  userMessage,
} from "../../lib/chat.ts";
import type { SnippetRequest } from "../../lib/snippets.ts";
import { Store } from "../../lib/store.ts";
import { Told } from "../../lib/told.ts";
import { EMPTY_PARAMETERS, fieldsOf, type Parameters } from "./parameters.ts";

export const PANES_MAX = 4;
/** Under this name what is being written is kept. */
export const PLAYGROUND_DRAFT = "playground";

type ChatRequest = ChatRun["request"];

/** One request of a pane and its answer; when that calls tools, their results make the next step. */
export interface Step {
  request: ChatRequest;
  answer: Answer;
  results: readonly string[] | null;
}

export interface Turn {
  id: number;
  text: string;
  pictures: readonly Picture[];
  /** One list of steps for each pane. */
  panes: readonly (readonly Step[])[];
}

interface Playground {
  turns: readonly Turn[];
  parameters: Parameters;
  /** The panes' models when the page was last looked at, for when its address names none. */
  models: readonly string[];
}

const KEY = "model-gateway.playground";
const EMPTY: Playground = { turns: [], parameters: EMPTY_PARAMETERS, models: [] };

/** Stays while other pages are looked at, and over a reload of the tab. */
export const playground = new Store<Playground>(EMPTY);
let aborter = new AbortController();

const change = (fields: Partial<Playground>) => playground.set({ ...playground.get(), ...fields });
export const setParameters = (parameters: Parameters): void => change({ parameters });
export const rememberModels = (models: readonly string[]): void => change({ models });

/** What is sent to a pane's model: the system prompt and the turns so far, with that pane's own answers. */
function messagesFor(pane: number, turns: readonly Turn[], system: string): ChatTurnMessage[] {
  const messages: ChatTurnMessage[] = system ? [{ role: "system", content: system }] : [];
  for (const { text, pictures, panes } of turns) {
    messages.push(userMessage(text, pictures));
    for (const { answer, results } of panes[pane] ?? []) messages.push(...messagesOf(answer, results));
  }
  return messages;
}

function messagesOf(
  { text, toolCalls, state }: Answer,
  results: readonly string[] | null,
): ChatTurnMessage[] {
  if (state === "failed" || isRunning({ state })) return [];
  // Calls that nobody answered are left out: most models refuse a conversation that has them.
  if (!results) return text ? [{ role: "assistant", content: text }] : [];
  return [
    { role: "assistant", content: text, tool_calls: toolCalls.map(({ index: _, ...call }) => call) },
    ...toolCalls.map(({ id }, i) => ({
      role: "tool" as const,
      tool_call_id: id ?? "",
      content: results[i] ?? "",
    })),
  ];
}

function update(turnId: number, pane: number, alter: (steps: readonly Step[]) => readonly Step[]): void {
  change({
    turns: playground
      .get()
      .turns.map((turn) =>
        turn.id === turnId
          ? { ...turn, panes: turn.panes.map((steps, i) => (i === pane ? alter(steps) : steps)) }
          : turn,
      ),
  });
}

const onChange = (turnId: number, pane: number, step: number) => (answer: Answer) =>
  update(turnId, pane, (steps) => steps.map((old, i) => (i === step ? { ...old, answer } : old)));

/** Adds a step to the pane's last turn and runs it. */
function runStep(turnId: number, pane: number, model: string): void {
  const { turns, parameters } = playground.get();
  const request = {
    model,
    messages: messagesFor(pane, turns, parameters.system),
    ...fieldsOf(parameters),
  };
  const step = turns.find(({ id }) => id === turnId)?.panes[pane]?.length ?? 0;
  update(turnId, pane, (steps) => [...steps, { request, answer: NEW_ANSWER, results: null }]);
  void runChat({ request, signal: aborter.signal, onChange: onChange(turnId, pane, step) });
}

export interface Said {
  text: string;
  pictures: readonly Picture[];
}

export function send(said: Said, models: readonly string[]): void {
  const { turns } = playground.get();
  const id = (turns.at(-1)?.id ?? 0) + 1;
  if (aborter.signal.aborted) aborter = new AbortController();
  change({ turns: [...turns, { id, ...said, panes: models.map(() => []) }] });
  for (const [pane, model] of models.entries()) runStep(id, pane, model);
}

/** Removes the last turn and runs it again. */
export function sendAgain({ text, pictures }: Said, models: readonly string[]): void {
  change({ turns: playground.get().turns.slice(0, -1) });
  send({ text, pictures }, models);
}

export function answerTools(turn: Turn, pane: number, results: readonly string[]): void {
  const model = turn.panes[pane]?.at(-1)?.request.model;
  if (model === undefined) return;
  if (aborter.signal.aborted) aborter = new AbortController();
  update(turn.id, pane, (steps) =>
    steps.map((step, i) => (i === steps.length - 1 ? { ...step, results } : step)),
  );
  runStep(turn.id, pane, model);
}

/** Takes up the rest of an answer whose connection was lost. */
export function goOn(turn: Turn, pane: number, step: number): void {
  const answer = turn.panes[pane]?.[step]?.answer;
  if (!answer?.streamId) return;
  if (aborter.signal.aborted) aborter = new AbortController();
  void followChat(
    { ...answer, streamId: answer.streamId, state: "streaming" },
    { signal: aborter.signal, onChange: onChange(turn.id, pane, step) },
  );
}

export const stop = (): void => aborter.abort();

export function startOver(): void {
  stop();
  change({ turns: [] });
}

export const isBusy = ({ panes }: Turn): boolean =>
  panes.some((steps) => steps.some(({ answer }) => isRunning(answer)));

/** As it was sent; before anything was, as it would be. */
export function requestOf(pane: number, model: string): SnippetRequest {
  const { turns, parameters } = playground.get();
  const sent = turns.at(-1)?.panes[pane]?.at(-1)?.request;
  const { extra, ...request } = sent ?? {
    model,
    messages: [...messagesFor(pane, [], parameters.system), { role: "user" as const, content: "Hello" }],
    ...fieldsOf(parameters),
  };
  // The public interface has these fields beside the others.
  return { ...request, ...(extra as Record<string, unknown> | undefined), stream: true } as SnippetRequest;
}

const alterAnswers = (turns: readonly Turn[], alter: (answer: Answer) => Answer): Turn[] =>
  turns.map((turn) => ({
    ...turn,
    panes: turn.panes.map((steps) => steps.map((step) => ({ ...step, answer: alter(step.answer) }))),
  }));

/** A failure as the tab's storage can keep it. */
const withPlainError = (answer: Answer): Answer =>
  answer.error instanceof Error ? { ...answer, error: answer.error.message } : answer;
const withRealError = (answer: Answer): Answer =>
  typeof answer.error === "string" ? { ...answer, error: new Told(answer.error, "") } : answer;

function keep(): void {
  const { turns, ...rest } = playground.get();
  const plain = { ...rest, turns: alterAnswers(turns, withPlainError) };
  try {
    sessionStorage.setItem(KEY, JSON.stringify(plain));
  } catch {
    // Pictures may be more than the browser keeps for a tab; the parameters always fit.
    sessionStorage.setItem(KEY, JSON.stringify({ ...rest, turns: [] }));
  }
}

function restore(): void {
  const kept = sessionStorage.getItem(KEY);
  if (kept === null) return;
  const { turns, ...rest } = { ...EMPTY, ...(JSON.parse(kept) as Partial<Playground>) };
  playground.set({ ...rest, turns: alterAnswers(turns, withRealError) });
  for (const { id, panes } of playground.get().turns)
    for (const [pane, steps] of panes.entries())
      for (const [step, { answer }] of steps.entries()) {
        if (!isRunning(answer)) continue;
        const tell = onChange(id, pane, step);
        if (answer.streamId === null) tell({ ...answer, state: "stopped" });
        else
          void followChat(
            { ...answer, streamId: answer.streamId },
            { signal: aborter.signal, onChange: tell },
          );
      }
}

addEventListener("pagehide", keep);
restore();
