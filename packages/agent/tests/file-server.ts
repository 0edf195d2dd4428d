/** A file server as mirrors are: ranges, ETags, a hub's file list, and faults on request. */
import { createHash } from "node:crypto";

export interface FileServer {
  url: string;
  put(path: string, bytes: Uint8Array, options?: { etag?: string | null }): void;
  /** Lists files of a repository as a hub does. */
  putRepository(repo: string, files: Record<string, Uint8Array>): void;
  /** Called for each request to a file; what it returns is sent instead. */
  intercept: ((request: Request, path: string) => Response | null) | null;
  requests: { path: string; range: string | null; authorization: string | null }[];
  stop(): void;
}

export const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

export function startFileServer(): FileServer {
  const files = new Map<string, { bytes: Uint8Array; etag: string | null }>();
  const lists = new Map<string, unknown>();
  const served: FileServer = {
    url: "",
    intercept: null,
    requests: [],
    put(path, bytes, options = {}) {
      files.set(path, { bytes, etag: options.etag === undefined ? `"${sha256(bytes)}"` : options.etag });
    },
    putRepository(repo, contents) {
      const sha = "c0ffee00";
      lists.set(`/api/models/${repo}`, {
        id: repo,
        sha,
        siblings: Object.entries(contents).map(([rfilename, bytes]) => ({
          rfilename,
          size: bytes.length,
          ...(bytes.length > 100
            ? { lfs: { sha256: sha256(bytes), size: bytes.length, pointerSize: 130 } }
            : {}),
        })),
      });
      for (const [name, bytes] of Object.entries(contents))
        served.put(`/${repo}/resolve/${sha}/${name}`, bytes);
    },
    stop: () => server.stop(true),
  };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    fetch(request) {
      const path = decodeURIComponent(new URL(request.url).pathname);
      const range = request.headers.get("range");
      served.requests.push({ path, range, authorization: request.headers.get("authorization") });
      const instead = served.intercept?.(request, path);
      if (instead) return instead;
      const list = lists.get(path);
      if (list) return Response.json(list);
      const file = files.get(path);
      if (!file) return new Response("not found", { status: 404 });
      return answer(file, range, request.headers.get("if-range"));
    },
  });
  served.url = `http://127.0.0.1:${server.port}`;
  return served;
}

function answer(
  file: { bytes: Uint8Array; etag: string | null },
  range: string | null,
  ifRange: string | null,
) {
  const headers = new Headers({ "accept-ranges": "bytes" });
  if (file.etag) headers.set("etag", file.etag);
  const start = Number(/^bytes=(\d+)-$/.exec(range ?? "")?.[1] ?? "-1");
  if (start < 0 || (ifRange && ifRange !== file.etag))
    return new Response(new Uint8Array(file.bytes), { headers });
  if (start >= file.bytes.length) return new Response(null, { status: 416, headers });
  headers.set("content-range", `bytes ${start}-${file.bytes.length - 1}/${file.bytes.length}`);
  return new Response(new Uint8Array(file.bytes.subarray(start)), { status: 206, headers });
}

/** Sends the first bytes of a file, then breaks the connection. */
export function breakingAfter(bytes: Uint8Array, sentBytes: number, etag: string): Response {
  const stream = new ReadableStream({
    async start(controller) {
      controller.enqueue(new Uint8Array(bytes.subarray(0, sentBytes)));
      await Bun.sleep(30);
      controller.error(new Error("cut"));
    },
  });
  return new Response(stream, { headers: { etag, "content-length": String(bytes.length) } });
}
