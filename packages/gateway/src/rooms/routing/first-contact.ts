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

/** Time limits for all trials together, and for each. */
const ALL_WITHIN_MS = 20_000;
const EACH_WITHIN_MS = 12_000;
const ANSWER_BYTES_MAX = 1024 * 1024;
const DETAIL_CHARS_MAX = 300;
const SHORT_TOKENS = 16;
const TOOL_TOKENS = 64;
/** Vendors cache prompts of about a thousand tokens and more. */
const CACHED_CHARS = 6_000;

const REFUSED = new Set([401, 403]);
const NOT_CHATTING =
  /embed|whisper|tts|speech|audio|realtime|image|dall-e|moderation|rerank|video|veo|imagen|sora|guard/i;
const CHEAP = /nano|mini|lite|flash|haiku|small|tiny|8b|instant|fast/i;

/** The dialect of a model listing, by how the key is sent. */
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

/** The smallest request in each dialect. */
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
  /** Null: a cheap model of the listing. */
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
  /** Null: it was only probed. */
  seen: Seen | null;
}

/** Tries an unknown server with a few short requests at once, each with its own result. */
export async function firstContact(options: ContactOptions): Promise<Tested & { seen: Seen }> {
  const contact = new Contact(options);
  const { clock, config, at } = options;
  const startedMs = clock.now();
  const { auth, models } = await contact.list();
  const latencyMs = clock.now() - startedMs;
  const model = options.model ?? config.models[0] ?? cheapest(models);
  const spoken = model === null ? [] : await contact.speak(model, auth);
  // The first dialect's manner, and the dialects that work with the same way of sending the key.
  const { dialect: _, ...manner }: Partial<Spoken> = spoken[0] ?? {};
  const spokenAlike = spoken.filter((each) => each.auth === manner.auth).map(({ dialect }) => dialect);
  const seen = () => ({ ...manner, dialects: spokenAlike, ...contact.found, model, at });
  if (model !== null && spoken.length > 0) await contact.use(model, seen());
  const ok = spoken.length > 0 || (model === null && auth !== null);
  const failed = contact.found.trials.find(
    ({ name }) => model === null || name === spokenAlike[0] || name === "chat",
  );
  const detail = ok ? null : (failed?.detail ?? "no chat was answered");
  return { ok, detail, latencyMs, models, seen: seen() };
}

const cheapest = (models: readonly string[]): string | null => {
  const chatting = models.filter((id) => !NOT_CHATTING.test(id));
  return chatting.find((id) => CHEAP.test(id)) ?? chatting[0] ?? null;
};

class Contact {
  readonly found = { trials: [] as Trial[], prompt_tokens: 0, completion_tokens: 0 };
  readonly #deadline = AbortSignal.timeout(ALL_WITHIN_MS);

  constructor(readonly options: ContactOptions) {}

  async #try<T>(name: string, work: (signal: AbortSignal) => Promise<[T, string]>): Promise<T | null> {
    // Listed now, so that trials are in the order in which they began.
    const trial: Trial = { name, ok: false, detail: "" };
    this.found.trials.push(trial);
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

  /** Tries each dialect with one way of sending the key after the other, until one is not refused. */
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
    this.found.prompt_tokens += count(prompt_tokens);
    this.found.completion_tokens += count(completion_tokens);
    return {
      promptTokens: count(prompt_tokens),
      cachedTokens: isObject(parts) ? count(parts.cached_tokens) : 0,
    };
  }

  async use(model: string, seen: Seen): Promise<void> {
    const messages = [{ role: "user", content: "Count from one to twenty." }];
    const tools = { model, ...TOOL_BODY };
    await this.#with({ seen }, (backend) =>
      Promise.all([
        this.#try("stream", async (signal) => {
          const body = { model, messages, stream: true, ...limit(backend, model, SHORT_TOKENS) };
          const answer = await backend.chat!(ownChat(body, signal));
          const text = (await answer.bytes(ANSWER_BYTES_MAX)).toString();
          if (!/^data:/m.test(text)) throw new Error("it answered without a stream");
          return [true, ""];
        }),
        this.#try("abort", async (signal) => {
          const abort = new AbortController();
          const body = { model, messages, stream: true, ...limit(backend, model, TOOL_TOKENS) };
          const answer = await backend.chat!(ownChat(body, AbortSignal.any([signal, abort.signal])));
          const { promise: begun, resolve, reject } = Promise.withResolvers<void>();
          const end = () => reject(new Error("it answered nothing"));
          answer.pipe({ piece: () => resolve(), flush() {}, end, failed: reject }).resume();
          await begun;
          abort.abort();
          return [true, "left after the first of its answer"];
        }),
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

/** What to change before a refused chat is tried again. */
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

/** Coding agents, and the API that each uses. */
const AGENTS: readonly [name: string, DialectName][] = [
  ["Claude Code", "messages"],
  ["Codex", "responses"],
  ["Gemini CLI", "gemini"],
];

export function agentsOf({ trials, dialects }: Seen): { name: string; ok: boolean; detail: string }[] {
  const failed = trials.find(({ name, ok }) => !ok && (name === "stream" || name === "tools"));
  return AGENTS.map(([name, dialect]) => {
    if (dialects.length === 0) return { name, ok: false, detail: "no chat was answered" };
    if (failed) return { name, ok: false, detail: `${failed.name}: ${failed.detail}` };
    const detail = dialects.includes(dialect) ? "in its own API, as it is" : `translated to ${dialects[0]}`;
    return { name, ok: true, detail };
  });
}
