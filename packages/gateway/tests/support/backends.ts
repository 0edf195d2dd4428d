import type {
  BackendConfig,
  BackendDeps,
  BackendKind,
  ChatCall,
  JsonBody,
  ModelCall,
} from "../../src/backends/contract.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";

export const realDeps: BackendDeps = {
  fetch: (url, init) => fetch(url, init),
  clock: systemClock,
  ids: randomIds,
  log: silentLog,
};

export const backendConfig = (
  kind: BackendKind,
  url: string,
  rest: Partial<BackendConfig> = {},
): BackendConfig => ({ name: "under-test", kind, type: kind, url, apiKey: null, models: [], ...rest });

const jsonBody = (body: Record<string, unknown>): JsonBody => ({
  bytes: () => JSON.stringify(body),
  object: () => body,
});

export const modelCall = (body: Record<string, unknown>, rest: Partial<ModelCall> = {}): ModelCall => ({
  model: String(body.model),
  body: jsonBody(body),
  requestId: "r1",
  signal: new AbortController().signal,
  ...rest,
});

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

/** Waits until `check` holds; fails after a generous time. */
export async function until(check: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadlineMs = Date.now() + 20_000;
  while (!(await check())) {
    if (Date.now() > deadlineMs) throw new Error(`it never came to this: ${what}`);
    await Bun.sleep(5);
  }
}
