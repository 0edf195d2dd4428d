import {
  AUTHS,
  type AuthName,
  type Backend,
  type BackendConfig,
  BackendError,
  type BackendManner,
  CHAT_LIMIT_FIELDS,
  DIALECTS,
  type DialectName,
  limitFieldsOf,
  ownChat,
  type Seen,
  type Trial,
} from "../../backends/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import { isObject } from "../../kernel/json.ts";
import { hideSecrets } from "../../kernel/secrets.ts";
import { REQUEST_TOKENS_MAX } from "../../kernel/usage-parts.ts";

/** For all trials together, and for each of them. */
const ALL_WITHIN_MS = 20_000;
const EACH_WITHIN_MS = 12_000;
const ANSWER_BYTES_MAX = 1024 * 1024;
const DETAIL_CHARS_MAX = 300;
const SHORT_TOKENS = 16;
const TOOL_TOKENS = 64;
/** Vendors cache prompts from about a thousand tokens on. */
const CACHED_CHARS = 6_000;

const REFUSED = new Set([401, 403]);
const NOT_CHATTING =
  /embed|whisper|tts|speech|audio|realtime|image|dall-e|moderation|rerank|video|veo|imagen|sora|guard/i;
const CHEAP = /nano|mini|lite|flash|haiku|small|tiny|8b|instant|fast/i;

/** A listing asked for by this way of sending the key is the one of this dialect. */
const LISTED_IN: Record<AuthName, DialectName> = {
  bearer: "chat",
  "x-api-key": "messages",
  "x-goog-api-key": "gemini",
  "api-key": "chat",
};

const PROMPT = "Reply with the word ok.";
const TOOL = {
  name: "get_weather",
  description: "The weather in a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const TOOL_BODY = {
  messages: [
    {
      role: "system",
      content: "You answer questions about the weather with the tool. ".repeat(CACHED_CHARS / 54),
    },
    { role: "user", content: "Call the tool for Oslo now." },
  ],
  tools: [{ type: "function", function: TOOL }],
};

/** The least that each dialect takes, as an agent would send it. */
const NATIVE_BODY: Record<Exclude<DialectName, "chat">, (model: string) => Record<string, unknown>> = {
  responses: (model) => ({ model, input: PROMPT, max_output_tokens: SHORT_TOKENS, store: false }),
  messages: (model) => ({ model, max_tokens: SHORT_TOKENS, messages: [{ role: "user", content: PROMPT }] }),
  gemini: () => ({
    contents: [{ role: "user", parts: [{ text: PROMPT }] }],
    generationConfig: { maxOutputTokens: SHORT_TOKENS },
  }),
};

interface ContactOptions {
  config: BackendConfig;
  dialects: readonly DialectName[];
  /** The model that is asked; null: a cheap one of the listing. */
  model: string | null;
  create(config: BackendConfig): Backend;
  at: string;
  clock: Clock;
  tell(trial: Trial): void;
}

interface Spoken extends BackendManner {
  dialect: DialectName;
}

export interface Tested {
  ok: boolean;
  detail: string | null;
  latencyMs: number | null;
  models: string[];
  /** Null where there is nothing to try but a probe. */
  seen: Seen | null;
}

/** Tries a server that nothing is known of: some short requests at once, each with a result of its own. */
export async function firstContact(options: ContactOptions): Promise<Tested & { seen: Seen }> {
  const contact = new Contact(options);
  const { clock, config, at } = options;
  const startedMs = clock.now();
  const { auth, models } = await contact.list();
  const latencyMs = clock.now() - startedMs;
  const model = options.model ?? config.models[0] ?? cheapest(models);
  const spoken = model === null ? [] : await contact.speak(model, auth);
  const manner = mannerOf(spoken);
  const seen = () => ({ ...manner, ...contact.told(), model, at });
  if (model !== null && spoken.length > 0) await contact.use(model, seen());
  const ok = spoken.length > 0 || (model === null && auth !== null);
  const failed = contact
    .told()
    .trials.find(({ name }) => model === null || name === manner.dialects[0] || name === "chat");
  const detail = ok ? null : (failed?.detail ?? "no chat was answered");
  return { ok, detail, latencyMs, models, seen: seen() };
}

const cheapest = (models: readonly string[]): string | null => {
  const chatting = models.filter((id) => !NOT_CHATTING.test(id));
  return chatting.find((id) => CHEAP.test(id)) ?? chatting[0] ?? null;
};

/** One manner for all: the first dialect's, and the dialects that were spoken like it. */
function mannerOf(spoken: readonly Spoken[]): BackendManner & { dialects: DialectName[] } {
  const { dialect: _, ...manner }: Partial<Spoken> = spoken[0] ?? {};
  return {
    ...manner,
    dialects: spoken.filter(({ auth }) => auth === manner.auth).map(({ dialect }) => dialect),
  };
}

class Contact {
  readonly #trials: Trial[] = [];
  readonly #deadline = AbortSignal.timeout(ALL_WITHIN_MS);
  #promptTokens = 0;
  #completionTokens = 0;

  constructor(readonly options: ContactOptions) {}

  told(): Pick<Seen, "trials" | "prompt_tokens" | "completion_tokens"> {
    return {
      trials: this.#trials,
      prompt_tokens: this.#promptTokens,
      completion_tokens: this.#completionTokens,
    };
  }

  async #try<T>(name: string, work: (signal: AbortSignal) => Promise<[T, string]>): Promise<T | null> {
    // In the order in which they began.
    const trial: Trial = { name, ok: false, detail: "" };
    this.#trials.push(trial);
    const end = (ok: boolean, detail: string) => {
      Object.assign(trial, { ok, detail: hideSecrets(detail).slice(0, DETAIL_CHARS_MAX) });
      this.options.tell(trial);
    };
    const signal = AbortSignal.any([this.#deadline, AbortSignal.timeout(EACH_WITHIN_MS)]);
    try {
      const [value, detail] = await work(signal);
      end(true, detail);
      return value;
    } catch (error) {
      end(false, signal.aborted ? "no answer in time" : (error as Error).message);
      return null;
    }
  }

  async #with<T>(change: Partial<BackendConfig>, work: (backend: Backend) => Promise<T>): Promise<T> {
    const backend = this.options.create({ ...this.options.config, ...change });
    try {
      return await work(backend);
    } finally {
      backend.close();
    }
  }

  /** The models, by each way of sending the key. */
  async list(): Promise<{ auth: AuthName | null; models: string[] }> {
    const { config, dialects } = this.options;
    const isKnown = config.auth !== undefined || config.apiKey === null || dialects.length < DIALECTS.length;
    const ways = isKnown ? [config.auth ?? "bearer"] : AUTHS;
    const lists = await Promise.all(
      ways.map((auth) =>
        this.#try(`listing by ${auth}`, (signal) => {
          const change = isKnown ? {} : { auth, dialects: [LISTED_IN[auth]] };
          return this.#with(change, async (backend) => {
            const { state, models, detail } = await backend.probe(signal);
            if (state !== "Healthy" || detail) throw new Error(detail ?? `it is ${state}`);
            return [{ auth, models: models.map(({ id }) => id) }, `${models.length} listed`];
          });
        }),
      ),
    );
    return lists.find((list) => list !== null) ?? { auth: null, models: [] };
  }

  /** Each dialect, by the ways of sending the key until one is not refused. */
  async speak(model: string, listedBy: AuthName | null): Promise<Spoken[]> {
    const { config, dialects } = this.options;
    const isKnown = config.auth !== undefined || config.apiKey === null;
    const others = isKnown ? [] : [...new Set([listedBy ?? AUTHS[0], ...AUTHS])];
    const manners: BackendManner[] = [{}, ...others.map((auth) => ({ auth }))];
    const tried = (config.dialects ?? dialects).map((dialect) =>
      this.#try(dialect, async (signal): Promise<[Spoken, string]> => {
        const queue = [...manners];
        for (;;) {
          const manner = queue.shift()!;
          try {
            await this.#with({ ...manner, dialects: [dialect] }, (backend) =>
              this.#exchange(backend, { dialect, model, signal }),
            );
            return [{ dialect, ...manner }, ""];
          } catch (error) {
            const status = (error instanceof BackendError && error.status) || 0;
            if (!REFUSED.has(status)) queue.splice(0, queue.length, ...nextManners(dialect, manner, error));
            if (queue.length === 0) throw error;
          }
        }
      }),
    );
    return (await Promise.all(tried)).filter((spoken) => spoken !== null);
  }

  async #exchange(
    backend: Backend,
    { dialect, model, signal }: { dialect: DialectName; model: string; signal: AbortSignal },
  ): Promise<void> {
    if (dialect === "chat") {
      const messages = [{ role: "user", content: PROMPT }];
      await this.#chat(backend, { model, messages }, { signal, tokens: SHORT_TOKENS });
      return;
    }
    const native = backend.native?.get(dialect);
    if (!native) throw new Error("this kind of backend does not speak it");
    const call = ownChat(NATIVE_BODY[dialect](model), signal, model);
    const reader = native.reader();
    reader.whole(jsonOf(await (await native.post(call)).bytes(ANSWER_BYTES_MAX)));
    this.#count(reader.usage);
  }

  async #chat(
    backend: Backend,
    body: Record<string, unknown>,
    { signal, tokens }: { signal: AbortSignal; tokens: number },
  ): Promise<{ message: Record<string, unknown>; cachedTokens: number; promptTokens: number }> {
    const call = ownChat({ ...body, ...limit(backend, body.model, tokens) }, signal);
    const answer = jsonOf(await (await backend.chat!(call)).bytes(ANSWER_BYTES_MAX));
    const { choices } = answer;
    const message = Array.isArray(choices) && isObject(choices[0]) ? choices[0].message : null;
    if (!isObject(message)) throw new Error("it answered something that is not a chat completion");
    return { message, ...this.#count(answer.usage) };
  }

  #count(usage: unknown): { cachedTokens: number; promptTokens: number } {
    const count = (value: unknown) =>
      Number.isInteger(value) && Number(value) > 0 ? Math.min(Number(value), REQUEST_TOKENS_MAX) : 0;
    const { prompt_tokens, completion_tokens, prompt_tokens_details: parts } = isObject(usage) ? usage : {};
    this.#promptTokens += count(prompt_tokens);
    this.#completionTokens += count(completion_tokens);
    return {
      promptTokens: count(prompt_tokens),
      cachedTokens: isObject(parts) ? count(parts.cached_tokens) : 0,
    };
  }

  /** What agents need, in the manner that was seen. */
  async use(model: string, seen: Seen): Promise<void> {
    const messages = [{ role: "user", content: "Count from one to twenty." }];
    const tools = { model, ...TOOL_BODY };
    await this.#with({ seen }, (backend) =>
      Promise.all([
        this.#try("stream", async (signal) => {
          const call = ownChat(
            { model, messages, stream: true, ...limit(backend, model, SHORT_TOKENS) },
            signal,
          );
          const answer = await backend.chat!(call);
          const text = (await answer.bytes(ANSWER_BYTES_MAX)).toString();
          if (!/^data:/m.test(text)) throw new Error("it answered without a stream");
          return [true, ""];
        }),
        this.#try("abort", (signal) => leftEarly(backend, { model, messages, signal })),
        this.#try("tools", async (signal) => {
          const { message } = await this.#chat(backend, tools, { signal, tokens: TOOL_TOKENS });
          const isCalled = Array.isArray(message.tool_calls) && message.tool_calls.length > 0;
          return [true, isCalled ? "it called one" : "it took one, and did not call it"];
        }).then((ok) =>
          this.#try("same prompt again", async (signal) => {
            if (!ok) throw new Error("not tried without tools");
            const again = await this.#chat(backend, tools, { signal, tokens: TOOL_TOKENS });
            const of = `of ${again.promptTokens} tokens`;
            if (again.cachedTokens === 0)
              throw new Error(`none ${of} came from a cache; some models cache only longer prompts`);
            return [true, `${again.cachedTokens} ${of} came from its cache`];
          }),
        ),
        this.#try("tools with an effort", async (signal) => {
          await this.#chat(backend, { ...tools, reasoning_effort: "low" }, { signal, tokens: TOOL_TOKENS });
          return [true, ""];
        }),
      ]),
    );
  }
}

const limit = (backend: Backend, model: unknown, tokens: number) => ({
  [limitFieldsOf(backend, String(model))[0]!]: tokens,
});

/** How a refused chat may be taken after all. */
function nextManners(dialect: DialectName, manner: BackendManner, error: unknown): BackendManner[] {
  const { status = 0, detail = "" } = error instanceof BackendError ? error : {};
  if (dialect !== "chat" || status < 400 || status >= 500) return [];
  const field = CHAT_LIMIT_FIELDS[1];
  if (/max_(completion_)?tokens/.test(detail) && !manner.limit_field)
    return [{ ...manner, limit_field: field }];
  if (status === 404 && !manner.id_prefix) return [{ ...manner, id_prefix: "models/" }];
  return [];
}

function jsonOf(bytes: Buffer): Record<string, unknown> {
  const value: unknown = JSON.parse(bytes.toString());
  if (!isObject(value)) throw new Error("it answered something that is not an object");
  return value;
}

async function leftEarly(
  backend: Backend,
  { signal, ...body }: { model: string; messages: unknown[]; signal: AbortSignal },
): Promise<[boolean, string]> {
  const leaving = new AbortController();
  const request = { ...body, stream: true, ...limit(backend, body.model, TOOL_TOKENS) };
  const answer = await backend.chat!(ownChat(request, AbortSignal.any([signal, leaving.signal])));
  await new Promise<void>((resolve, reject) => {
    answer
      .pipe({
        piece: () => resolve(),
        flush() {},
        end: () => reject(new Error("it answered nothing")),
        failed: reject,
      })
      .resume();
  });
  leaving.abort();
  return [true, "left after the first of its answer"];
}

/** Programs that code, and what each of them speaks. */
const AGENTS: readonly [name: string, DialectName][] = [
  ["Claude Code", "messages"],
  ["Codex", "responses"],
  ["Gemini CLI", "gemini"],
];

/** Which agents can work with a backend, by what was seen of it. */
export function agentsOf({ trials, dialects }: Seen): { name: string; ok: boolean; detail: string }[] {
  const failed = trials.find(({ name, ok }) => !ok && (name === "stream" || name === "tools"));
  return AGENTS.map(([name, dialect]) => {
    if (dialects.length === 0) return { name, ok: false, detail: "no chat was answered" };
    if (failed) return { name, ok: false, detail: `${failed.name}: ${failed.detail}` };
    const detail = dialects.includes(dialect) ? "in its own API, as it is" : `translated to ${dialects[0]}`;
    return { name, ok: true, detail };
  });
}
