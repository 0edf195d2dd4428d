/** The least that a proxy on this runtime can do: pass the body on, pass the answer back, read nothing. */
const upstream = process.argv[2]!;

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  idleTimeout: 0,
  async fetch(request) {
    const { pathname } = new URL(request.url);
    const answer = await fetch(upstream + pathname, {
      method: request.method,
      headers: { "content-type": "application/json" },
      body: await request.bytes(),
    });
    return new Response(answer.body, {
      status: answer.status,
      headers: { "content-type": answer.headers.get("content-type") ?? "application/json" },
    });
  },
});
console.log(server.port);
