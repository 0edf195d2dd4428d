/**
 * The least that a proxy on this runtime can do: pass the body on, pass the answer back, read nothing. With `parsing`,
 * the least that one does which changes requests and counts tokens: it parses both, and writes them anew.
 */
const [upstream, mode] = process.argv.slice(2);
const isParsing = mode === "parsing";
const tokensByKey = new Map<string, number>();

async function counted(answer: Response, key: string): Promise<string> {
  const body = (await answer.json()) as { usage?: { total_tokens: number } };
  tokensByKey.set(key, (tokensByKey.get(key) ?? 0) + (body.usage?.total_tokens ?? 0));
  return JSON.stringify(body);
}

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const parsed =
      isParsing && request.method === "POST" ? ((await request.json()) as { stream?: boolean }) : null;
    const answer = await fetch(upstream + pathname, {
      method: request.method,
      headers: { "content-type": "application/json" },
      body: parsed ? JSON.stringify(parsed) : await request.bytes(),
    });
    const key = request.headers.get("authorization") ?? "";
    const body = parsed && !parsed.stream ? await counted(answer, key) : answer.body;
    return new Response(body, {
      status: answer.status,
      headers: { "content-type": answer.headers.get("content-type") ?? "application/json" },
    });
  },
});
console.log(server.port);
