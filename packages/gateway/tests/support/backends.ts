import { HttpOrigin } from "@model-gateway/wire/client";
import type {
  Answer,
  Backend,
  BackendConfig,
  BackendDeps,
  ChatCall,
  JsonBody,
  ModelCall,
} from "../../src/backends/contract.ts";
import type { ResponseAnswer } from "../../src/backends/shared/upstream-http.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";

export const realDeps: BackendDeps = {
  fetch: (url, init) => fetch(url, init),
  openOrigin: (options) => new HttpOrigin(options, systemClock),
  clock: systemClock,
  ids: randomIds,
  log: silentLog,
};

export const backendConfig = (
  kind: string,
  url: string,
  rest: Partial<BackendConfig> = {},
): BackendConfig => ({ name: "under-test", kind, type: kind, url, apiKey: null, models: [], ...rest });

const jsonBody = (body: Record<string, unknown>): JsonBody => ({
  bytes: () => JSON.stringify(body),
  object: () => body,
});

export const modelCall = (body: Record<string, unknown>, rest: Partial<ModelCall> = {}): ModelCall => {
  const signal = rest.signal ?? new AbortController().signal;
  return { model: String(body.model), body: jsonBody(body), requestId: "r1", ...abortable(signal), ...rest };
};

/** The two faces of a call's abort, for one signal. */
export const abortable = (signal: AbortSignal): Pick<ModelCall, "signal" | "whenAborted"> => ({
  signal,
  whenAborted(run) {
    if (signal.aborted) run(signal.reason);
    else signal.addEventListener("abort", () => run(signal.reason), { once: true });
  },
});

type Responding<Name extends "chat" | "embed"> = (
  ...args: Parameters<NonNullable<Backend[Name]>>
) => Promise<Response>;
export type RespondingBackend = Omit<Backend, "chat" | "embed"> & {
  chat?: Responding<"chat">;
  embed?: Responding<"embed">;
};

/** A backend whose answers are the responses that they are read from. */
export const responding = (backend: Backend): RespondingBackend =>
  new Proxy(backend, {
    get(target, name) {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "chat" && name !== "embed") return value.bind(target);
      return async (call: ChatCall) => ((await value.call(target, call)) as ResponseAnswer).response;
    },
  }) as unknown as RespondingBackend;

/** A whole answer as text. */
export const textOf = async (answer: Answer): Promise<string> =>
  (await answer.bytes(64 * 1024 * 1024)).toString();

/** An answer's pieces, read one by one. */
export function readerOf(answer: Answer): { read(): Promise<{ done: boolean; value?: Uint8Array }> } {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  answer
    .pipe({
      piece: (bytes) => void writer.write(bytes).catch(() => {}),
      flush() {},
      end: () => void writer.close().catch(() => {}),
      failed: (error) => void writer.abort(error).catch(() => {}),
    })
    .resume();
  return readable.getReader();
}

/** A call whose body asks for a stream when `stream` is set in it. */
export const chatCall = (body: Record<string, unknown>, rest: Partial<ModelCall> = {}): ChatCall => ({
  ...modelCall(body, rest),
  stream: body.stream === true,
});

/** The JSON of each `data:` line; `[DONE]` stays a text. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into events freely
export const eventsOf = (text: string): any[] =>
  text
    .split("\n\n")
    .filter(Boolean)
    .map((event) => event.replace(/^data: /, ""))
    .map((data) => (data === "[DONE]" ? data : JSON.parse(data)));
