import { isObject } from "../../kernel/json.ts";
import { type BackendDeps, BackendError, type ChatCall } from "../contract.ts";
import { chatIdentity, completionBody, eventStream } from "../shared/chat-events.ts";
import { convertedStream } from "../shared/converted-stream.ts";
import { EventObjects } from "../shared/event-objects.ts";
import { fetchUpstream, readJson } from "../shared/upstream-http.ts";
import { nextTurn } from "./chat-turns.ts";
import type { ChatAnswer, Dialect } from "./dialect.ts";
import type { KeptAnswers } from "./kept-answers.ts";

interface TranslatedOptions {
  dialect: Dialect;
  base: string;
  headers: Record<string, string>;
  deps: Pick<BackendDeps, "fetch" | "clock">;
  kept: KeptAnswers;
  /** The operator's changes to what is sent. */
  change: ((fields: Record<string, unknown>) => Record<string, unknown>) | null;
}

/** A chat in a dialect of another form: the request there, the answer back as a chat completion. */
export async function translatedChat(
  { dialect, base, headers, deps, kept, change }: TranslatedOptions,
  { model, body, stream, requestId, scope, signal }: ChatCall,
): Promise<Response> {
  const translation = dialect.translation!;
  const asked = body.object();
  const { before } = nextTurn(asked.messages);
  const request = translation.request(asked, {
    model,
    stream,
    wantsThoughts: body.wantsThoughts,
    kept: (turn) => (scope === undefined ? null : kept.find(scope, turn)),
  });
  const leaving = new AbortController();
  const answer = await fetchUpstream(deps.fetch, {
    url: base + dialect.path({ model, stream }),
    headers,
    signal: AbortSignal.any([signal, leaving.signal]),
    body: JSON.stringify(change ? change(request) : request),
  });
  const identity = chatIdentity({ requestId, model, nowMs: deps.clock.now() });
  const keep = (told: ChatAnswer) => {
    if (told.content && scope !== undefined) kept.keep(scope, { ...told, before }, told.content);
  };
  if (stream && !answer.headers.get("content-type")?.includes("json")) {
    const events = await convertedStream({
      body: answer.body!,
      objects: new EventObjects(),
      converter: translation.stream(identity, keep),
      signal,
      abortUpstream: () => leaving.abort(),
    });
    return eventStream(events);
  }
  const whole = await readJson(answer, signal);
  if (!isObject(whole))
    throw new BackendError("transport", "the upstream answered something that is not an object");
  const told = translation.answer(whole);
  keep(told);
  const { finishReason, usage, stopSequence } = told;
  return Response.json(
    completionBody(identity, { message: messageOf(told), finishReason, usage, stopSequence }),
  );
}

const messageOf = ({ text, reasoning, refusal, calls, images }: ChatAnswer): Record<string, unknown> => ({
  role: "assistant",
  content: text === "" && calls.length > 0 ? null : text,
  ...(reasoning !== "" && { reasoning_content: reasoning }),
  ...(refusal !== "" && { refusal }),
  ...(calls.length > 0 && {
    tool_calls: calls.map(({ id, name, arguments: args }) => ({
      id,
      type: "function",
      function: { name, arguments: args },
    })),
  }),
  ...(images && { images: images.map((url) => ({ type: "image_url", image_url: { url } })) }),
});
