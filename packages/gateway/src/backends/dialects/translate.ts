import { isJsonType } from "@model-gateway/wire/http";
import { isObject, objectIn } from "../../kernel/json.ts";
import { type Answer, type BackendDeps, BackendError, type ChatCall } from "../contract.ts";
import {
  ChatEvents,
  type ChatIdentity,
  chatIdentity,
  completionBody,
  errorEvent,
} from "../shared/chat-events.ts";
import { eventAnswer, fetchUpstream, jsonAnswer, readJson, transportError } from "../shared/upstream-http.ts";
import { digestsBefore } from "./chat-turns.ts";
import type { ChatAnswer, JsonObject, StreamConverter, Translation } from "./dialect.ts";
import type { KeptAnswers } from "./kept-answers.ts";

interface TranslatedOptions {
  translation: Translation;
  url: string;
  headers: Record<string, string>;
  deps: Pick<BackendDeps, "fetch" | "clock">;
  form?: StreamObjects["form"];
  /** Absent: nothing of an answer has to be sent back in the dialect's own form. */
  kept?: KeptAnswers;
  change?: ((fields: Record<string, unknown>) => Record<string, unknown>) | null;
}

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
  const completed = (chat: ChatAnswer) => {
    if (chat.content) kept?.keep(scope, { ...chat, before: before.at(-1)! }, chat.content);
  };
  if (stream && (form === "lines" || !isJsonType(answer.headers.get("content-type")))) {
    const events = await convertedStream({
      body: answer.body!,
      form,
      converter: translation.stream(),
      identity,
      completed,
      signal,
      abortUpstream: () => leaving.abort(),
    });
    return eventAnswer(events, signal);
  }
  const whole = await readJson(answer, signal);
  const chat = translation.answer(isObject(whole) ? whole : {});
  completed(chat);
  return jsonAnswer(completionBody(identity, { ...chat, message: messageOf(chat) }), signal);
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

interface ConvertedStream {
  body: ReadableStream<Uint8Array>;
  form: StreamObjects["form"];
  converter: StreamConverter;
  identity: ChatIdentity;
  completed(answer: ChatAnswer): void;
  signal: AbortSignal;
  abortUpstream: () => void;
}

/** A stream in another dialect as chat events. Waits for the first object: a failure there fails the call. */
export async function convertedStream(stream: ConvertedStream): Promise<ReadableStream<Uint8Array>> {
  const { body, form, converter, identity, completed, signal, abortUpstream } = stream;
  const reader = body.getReader();
  const objects = new StreamObjects(form);
  const encoder = new TextEncoder();
  const chat = new ChatEvents(identity);

  /** The objects of the next piece with any; null at the end. */
  const next = async (): Promise<JsonObject[] | null> => {
    for (;;) {
      const { value, done } = await reader.read();
      const found = done ? objects.end() : objects.push(value);
      if (found.length > 0) return found;
      if (done) return null;
    }
  };
  const failed = (error: unknown) => {
    abortUpstream();
    return transportError(error, signal);
  };

  let waiting: JsonObject[] | null;
  try {
    waiting = await next();
    if (!waiting) throw new BackendError("transport", "the upstream's stream ended before its first line");
    const failure = converter.failureOf(waiting[0]!);
    if (failure) throw failure;
  } catch (error) {
    throw failed(error);
  }
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          for (;;) {
            const batch = waiting ?? (await next());
            waiting = null;
            if (batch === null) converter.ended?.();
            if (batch === null && !converter.answer)
              throw new BackendError("transport", "the upstream's stream ended before its last line");
            let events = "";
            let failure: BackendError | null = null;
            for (const object of batch ?? []) {
              failure = converter.failureOf(object);
              if (failure) events += errorEvent(failure.detail, failure.usage);
              else for (const delta of converter.deltas(object)) events += chat.delta(delta);
              if (failure || converter.answer) break;
            }
            const { answer } = converter;
            if (answer) {
              completed(answer);
              events += chat.end(answer.finishReason, answer.usage, answer.stopSequence);
            }
            if (events) controller.enqueue(encoder.encode(events));
            if (failure || answer) {
              controller.close();
              reader.cancel().catch(() => {});
              return;
            }
            if (events) return;
          }
        } catch (error) {
          controller.error(failed(error));
        }
      },
      cancel: abortUpstream,
    },
    // Reads nothing ahead, so that a slow client slows the upstream down.
    { highWaterMark: 0 },
  );
}

const EVENT_CHARS_MAX = 16 * 1024 * 1024;

export class StreamObjects {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #data: string[] = [];
  /** Length of the unfinished event or line. */
  #chars = 0;

  /** `events`: each event's data is an object; `lines`: each line is. */
  constructor(readonly form: "events" | "lines") {}

  push(bytes: Uint8Array): JsonObject[] {
    return this.#take(this.#decoder.decode(bytes, { stream: true }));
  }

  /** The last object may lack its line end. */
  end(): JsonObject[] {
    return this.#take(`${this.#decoder.decode()}\n\n`);
  }

  #take(text: string): JsonObject[] {
    this.#rest += text;
    this.#chars += text.length;
    if (this.#chars > EVENT_CHARS_MAX)
      throw new BackendError(
        "transport",
        `the upstream sent an event of more than ${EVENT_CHARS_MAX} characters`,
      );
    // A line may come in thousands of pieces: split only at its end.
    if (!text.includes("\n")) return [];
    const lines = this.#rest.split(/\r?\n/);
    this.#rest = lines.pop()!;
    return lines.flatMap((line) => this.#line(line));
  }

  #line(line: string): JsonObject[] {
    if (this.form === "events" && line !== "") {
      if (line.startsWith("data:")) this.#data.push(line.slice(5));
      return [];
    }
    this.#chars = this.#rest.length;
    const data = this.form === "lines" ? line : this.#data.splice(0).join("\n");
    const text = data.trim();
    if (text === "" || (this.form === "events" && text === "[DONE]")) return [];
    const value = objectIn(data);
    if (!value) throw new BackendError("transport", "the upstream sent something that is not a JSON object");
    return [value];
  }
}
