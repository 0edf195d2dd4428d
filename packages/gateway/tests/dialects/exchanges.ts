/** What a client and a server said to each other, event by event, without what differs from one run to the next. */

// biome-ignore lint/suspicious/noExplicitAny: bodies of four APIs
export type Json = any;

export interface Exchange {
  path: string;
  headers: Record<string, string>;
  body: Json;
  answer: string;
}

/** Stands between a client and a server, and notes the chats. */
export function startRecorder(target: string): { url: string; exchanges: Exchange[]; stop(): void } {
  const exchanges: Exchange[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    fetch: async (request) => {
      const path = request.url.slice(server.url.origin.length);
      const { method } = request;
      const body = method === "POST" ? await request.text() : undefined;
      const answer = await fetch(target + path, { method, headers: request.headers, body });
      const text = await answer.text();
      if (answer.ok && body && !/count_?tokens/i.test(path))
        exchanges.push({
          ...{ path, headers: Object.fromEntries(request.headers), body: JSON.parse(body), answer: text },
        });
      const type = answer.headers.get("content-type") ?? "";
      return new Response(text, { status: answer.status, headers: { "content-type": type } });
    },
  });
  return { url: server.url.origin, exchanges, stop: () => void server.stop(true) };
}

/** The events of a stream, or the one body of an answer that is none. */
export function eventsIn(answer: string): Json[] {
  if (answer.startsWith("{")) return [JSON.parse(answer)];
  return answer.split(/\r?\n\r?\n/).flatMap((event) => {
    const data = /^data: ?(.*)$/m.exec(event)?.[1];
    return data && data !== "[DONE]" ? [JSON.parse(data)] : [];
  });
}

const MADE_UP = new Set(["id", "call_id", "signature", "encrypted_content", "thoughtSignature", "data"]);

/** Ids and seals that an answer makes up, each once. */
export function madeUpIn(answer: string): string[] {
  const found = new Set<string>();
  for (const event of eventsIn(answer))
    JSON.stringify(event, (name, value) => {
      if (MADE_UP.has(name) && typeof value === "string" && value !== "") found.add(value);
      return value;
    });
  return [...found];
}

export type Told = [kind: string, text: string];

/** What a stream's events tell, one after the other; pieces of one thing are joined, and figures do not count. */
export function toldBy(answer: string): Told[] {
  const all: Told[] = [];
  for (const [kind, text] of eventsIn(answer).flatMap(toldIn)) {
    const last = all.at(-1);
    if (last?.[0] === kind && kind.endsWith("delta")) last[1] += text;
    else all.push([kind, text]);
  }
  return all.map(([kind, text]) => [kind, text.replace(/\d+/g, "#")]);
}

function toldIn(event: Json): Told[] {
  if (event.choices) return event.choices.flatMap(toldInChoice);
  if (event.candidates) return event.candidates.flatMap(toldInCandidate);
  if (event.usage && !event.type) return [];
  const { type, delta, content_block: block, item, part, response } = event;
  if (type === "ping") return [];
  if (typeof delta === "string") return [[type, delta]];
  if (type === "content_block_delta")
    return [[delta.type, delta.text ?? delta.thinking ?? delta.partial_json ?? ""]];
  const inner = block ?? item ?? part;
  if (inner) return [[type, `${inner.type} ${inner.name ?? ""}`]];
  return [[type, delta?.stop_reason ?? response?.status ?? ""]];
}

function toldInChoice({ delta, finish_reason }: Json): Told[] {
  const told: Told[] = [];
  for (const field of ["reasoning_content", "content"])
    if (delta?.[field]) told.push([`${field} delta`, delta[field]]);
  for (const { function: fn, id } of delta?.tool_calls ?? []) {
    if (id) told.push(["call", fn.name]);
    if (fn.arguments) told.push(["arguments delta", fn.arguments]);
  }
  if (finish_reason) told.push(["finish", finish_reason]);
  return told;
}

function toldInCandidate({ content, finishReason }: Json): Told[] {
  const parts = (content?.parts ?? []).map(({ text, thought, functionCall }: Json): Told => {
    if (functionCall) return ["call", JSON.stringify([functionCall.name, functionCall.args])];
    return [thought ? "thought delta" : "text delta", text ?? ""];
  });
  return [
    ...parts.filter(([, text]: Told) => text !== ""),
    ...(finishReason ? [["finish", finishReason]] : []),
  ];
}
