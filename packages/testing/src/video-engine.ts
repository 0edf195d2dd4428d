/** An engine that makes videos, as a node starts it: its own process, guarded by a key. `/finish` ends what is slow. */
import { parseArgs } from "node:util";
import { FILM } from "./video.ts";
import { clipOf, videosApi } from "./videos-api.ts";

const { values } = parseArgs({
  options: { alias: { type: "string" }, host: { type: "string" }, port: { type: "string" } },
});
const { alias = "", host, port } = values;
const key = process.env.ENGINE_KEY ?? "";
const api = videosApi();
/** Longer than what a tunnel lets one stream hold, and nowhere the same. */
const long = new Uint8Array(1_500_000).map((_, i) => (i * 31 + (i >> 8)) & 255);
long.set(FILM);
api.clip = (request) => clipOf(long, request);

Bun.serve({
  hostname: host,
  port: Number(port),
  idleTimeout: 0,
  fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/health") return Response.json({ status: "healthy" });
    if (request.headers.get("authorization") !== `Bearer ${key}`)
      return Response.json({ error: "Unauthorized" }, { status: 401 });
    if (pathname === "/v1/models") return Response.json({ object: "list", data: [{ id: alias }] });
    if (pathname === "/pids") return Response.json({ pid: process.pid });
    if (pathname === "/seen") {
      const { asked, deleted, polls } = api;
      return Response.json({ asked: asked.length, deleted: deleted.length, polls });
    }
    if (pathname === "/finish") {
      api.isFast = true;
      return new Response(null, { status: 204 });
    }
    if (/^\/v1\/videos(\/|$)/.test(pathname)) return api.fetch(request);
    return Response.json({ detail: "Not Found" }, { status: 404 });
  },
});
