import type { HttpRequest } from "@model-gateway/wire/http";
import type { Log } from "../../kernel/log.ts";
import { type Asset, type Assets, INDEX_PATH, loadAssets } from "./assets.ts";

/** No inline scripts, no frames, and no other hosts, except for playing films. */
const SECURITY_HEADERS = {
  "content-security-policy": [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "media-src http: https: data: blob:",
    "connect-src 'self'",
    "worker-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "permissions-policy": "microphone=(self), camera=(), geolocation=()",
} as const;

const HTML = /^\s*(?:text\/html|application\/xhtml\+xml)\s*(?:;|$)/i;
const REFUSED = /;\s*q=0(?:\.0*)?\s*(?:;|$)/i;
const IMMUTABLE = "public, max-age=31536000, immutable";
/** Unknown paths below these are errors, not pages of the console. */
const SURFACES = /^\/(api|v1|ws|assets)(\/|$)/;

/** Whether the client lists HTML. Programs send no Accept header, or one that accepts anything. */
const acceptsHtml = (request: HttpRequest): boolean =>
  (request.header("accept") ?? "").split(",").some((range) => HTML.test(range) && !REFUSED.test(range));

function respond(request: HttpRequest, { type, gzip, immutable }: Asset): Response {
  const etag = `"${Bun.hash(gzip).toString(36)}"`;
  const headers = new Headers({
    ...SECURITY_HEADERS,
    "content-type": type,
    "cache-control": immutable ? IMMUTABLE : "no-cache",
    vary: "accept, accept-encoding",
    etag,
  });
  if (request.header("if-none-match") === etag) return new Response(null, { status: 304, headers });
  if (!/\bgzip\b/.test(request.header("accept-encoding") ?? ""))
    return new Response(Bun.gunzipSync(gzip), { headers });
  headers.set("content-encoding", "gzip");
  return new Response(gzip, { headers });
}

/** Answers a GET without a route: the console's files, documentation, or the console itself. */
export function createConsole({ log, basePath }: { log: Log; basePath: string }) {
  let assets: Promise<Assets> | null = null;
  const load = () => {
    assets ??= loadAssets(basePath).catch((error: unknown) => {
      assets = null;
      throw error;
    });
    return assets;
  };
  return (request: HttpRequest, path: string): Promise<Response | null> | null => {
    const isFile = path.startsWith("/assets/");
    if (SURFACES.test(path) && !isFile) return null;
    return load().then(
      (files) => {
        const found = files.get(path === "/" ? INDEX_PATH : path);
        if (found) return respond(request, found);
        // A missing file must not be answered with a page, which the browser would run as a script.
        if (isFile || /\.\w+$/.test(path) || !acceptsHtml(request)) return null;
        return respond(request, files.get(INDEX_PATH)!);
      },
      (error: unknown) => {
        log.error("bundling the console failed", { error });
        const headers = { "content-type": "text/plain; charset=utf-8" };
        return new Response("The console could not be built; the server's log says why.\n", {
          status: 500,
          headers,
        });
      },
    );
  };
}
