import { isObject } from "../../kernel/json.ts";
import type { Answer, BackendDeps, ChatCall } from "../contract.ts";
import { chatIdentity, completionBody, eventStream } from "../shared/chat-events.ts";
import { convertedStream } from "../shared/converted-stream.ts";
import { jsonAnswer, ResponseAnswer } from "../shared/response-answer.ts";
import { StreamObjects } from "../shared/stream-objects.ts";
import { fetchUpstream, readJson } from "../shared/upstream-http.ts";
import { digestsBefore } from "./chat-turns.ts";
import type { ChatAnswer, Translation } from "./dialect.ts";
import type { KeptAnswers } from "./kept-answers.ts";

interface TranslatedOptions {
  translation: Translation;
  url: string;
  headers: Record<string, string>;
  deps: Pick<BackendDeps, "fetch" | "clock">;
  /** How a streamed answer is written; absent: as events. */
  form?: StreamObjects["form"];
  /** Absent: answers of this form hold nothing that has to be sent back. */
  kept?: KeptAnswers;
  /** The operator's changes to what is sent. */
  change?: ((fields: Record<string, unknown>) => Record<string, unknown>) | null;
}

/** A chat in a dialect of another form: the request there, the answer back as a chat completion. */
export async function translatedChat(
  { translation, url, headers, deps, form = "events", kept, change }: TranslatedOptions,
  { model, body, stream, requestId, scope, signal }: ChatCall,
): Promise<Answer> {
  const asked = body.object();
  const before = kept && scope !== undefined ? digestsBefore(asked.messages) : [];
  const request = translation.request(asked, {
    model,
    stream,
    wantsThoughts: body.wantsThoughts,
    kept: (turn) => kept?.find(scope, { ...turn, before: before[turn.at]! }) ?? null,
  });
  const leaving = new AbortController();
  const answer = await fetchUpstream(deps.fetch, {
    url,
    headers,
    signal: AbortSignal.any([signal, leaving.signal]),
    body: JSON.stringify(change ? change(request) : request),
  });
  const identity = chatIdentity({ requestId, model, nowMs: deps.clock.now() });
  const completed = (told: ChatAnswer) => {
    if (told.content) kept?.keep(scope, { ...told, before: before.at(-1)! }, told.content);
  };
  if (stream && (form === "lines" || !answer.headers.get("content-type")?.includes("json"))) {
    const events = await convertedStream({
      body: answer.body!,
      objects: new StreamObjects(form),
      converter: translation.stream(),
      identity,
      completed,
      signal,
      abortUpstream: () => leaving.abort(),
    });
    return new ResponseAnswer(eventStream(events), signal);
  }
  const whole = await readJson(answer, signal);
  const told = translation.answer(isObject(whole) ? whole : {});
  completed(told);
  return jsonAnswer(completionBody(identity, { ...told, message: messageOf(told) }), signal);
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
