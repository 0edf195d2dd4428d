/** A small model server that speaks chat completions: it answers with the words it was told, one at a time. */
export interface Upstream {
  url: string;
  /** What its /cloud paths want as bearer. */
  key: string;
  /** Bodies of the chat requests so far. */
  requests: { model: string; messages: { role: string; content: unknown }[]; tools?: unknown[] }[];
  /** Streams that the gateway broke off. */
  aborted(): number;
  /** Ids that it lists; it answers for any. */
  models: readonly string[];
  /** Until it is false again, every chat is refused with 503. */
  failing: boolean;
  /** What the slow model still has to say comes at once: the test has seen it being slow. */
  hurry(): void;
  stop(): void;
}

const FAST = "demo-chat";
const SLOW = "demo-slow";
const KEY = "sk-cloud-like";
const SLOW_TOKENS = 60;
/** However slow the machine is: from its twentieth word on it waits for a test that hurries it. */
const slowTokenMs = (i: number) => (i < 20 ? 60 : 500);

const chunk = (model: string, delta: Record<string, unknown>, finish: string | null) =>
  `data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;

const wordsOf = (content: unknown): string[] => {
  const text = typeof content === "string" ? content : ((content as { text?: string }[])[0]?.text ?? "");
  return `You said: ${text}`.split(/(?<= )/);
};

export function startUpstream(): Upstream {
  let aborted = 0;
  let hurries = 0;
  const requests: Upstream["requests"] = [];
  const encoder = new TextEncoder();

  function stream(model: string, words: readonly string[], tools: boolean): Response {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const begun = hurries;
    const body = new ReadableStream<Uint8Array>({
      async start(controller) {
        const send = (text: string) => controller.enqueue(encoder.encode(text));
        const list = model === SLOW ? Array.from({ length: SLOW_TOKENS }, (_, i) => `word${i} `) : words;
        for (const [i, word] of list.entries()) {
          send(chunk(model, i === 0 ? { role: "assistant", content: word } : { content: word }, null));
          await new Promise((resolve) => {
            timer = setTimeout(resolve, model === SLOW && begun === hurries ? slowTokenMs(i) : 1);
          });
        }
        if (tools)
          send(
            chunk(
              model,
              {
                tool_calls: [
                  {
                    index: 0,
                    id: "t1",
                    type: "function",
                    function: { name: "get_weather", arguments: '{"city":"Gdańsk"}' },
                  },
                ],
              },
              null,
            ),
          );
        send(chunk(model, {}, tools ? "tool_calls" : "stop"));
        const usage = { prompt_tokens: 12, completion_tokens: list.length, total_tokens: 12 + list.length };
        send(
          `data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 1, model, choices: [], usage })}\n\ndata: [DONE]\n\n`,
        );
        controller.close();
      },
      cancel() {
        aborted++;
        clearTimeout(timer);
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  }

  const upstream: Pick<Upstream, "models" | "failing"> = { models: [FAST, SLOW], failing: false };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      if (pathname.startsWith("/cloud/") && request.headers.get("authorization") !== `Bearer ${KEY}`)
        return Response.json({ error: { message: "the key is wrong" } }, { status: 401 });
      if (pathname.endsWith("/models"))
        return Response.json({
          object: "list",
          data: upstream.models.map((id) => ({ id, object: "model", owned_by: "demo" })),
        });
      if (!pathname.endsWith("/chat/completions")) return new Response("not found", { status: 404 });
      if (upstream.failing)
        return Response.json({ error: { message: "no worker is available" } }, { status: 503 });
      const body = (await request.json()) as Upstream["requests"][number] & { stream?: boolean };
      requests.push(body);
      const words = wordsOf(body.messages.at(-1)?.content);
      if (body.stream) return stream(body.model, words, Boolean(body.tools?.length));
      const usage = {
        ...{ prompt_tokens: 12, completion_tokens: words.length, total_tokens: 12 + words.length },
        prompt_tokens_details: { cached_tokens: 9 },
      };
      const message = { role: "assistant", content: words.join("") };
      return Response.json({
        id: "c1",
        object: "chat.completion",
        created: 1,
        model: body.model,
        choices: [{ index: 0, message, finish_reason: "stop" }],
        usage,
      });
    },
  });
  return Object.assign(upstream, {
    url: `http://127.0.0.1:${server.port}`,
    key: KEY,
    requests,
    aborted: () => aborted,
    hurry: () => void hurries++,
    stop: () => void server.stop(true),
  });
}
