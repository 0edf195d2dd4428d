/** A file server as mirrors are: ranges, ETags, a hub's file list, and faults on request. */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";

export interface FileServer {
  url: string;
  put(path: string, bytes: Uint8Array, options?: { etag?: string | null }): void;
  /** Lists files of a repository as a hub does. */
  putRepository(repo: string, files: Record<string, Uint8Array>): void;
  /** Called for each request; when it returns true it has answered, or will. */
  intercept: ((response: ServerResponse, path: string) => boolean) | null;
  requests: { path: string; range: string | null; authorization: string | null }[];
  stop(): void;
}

export const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

export async function startFileServer(): Promise<FileServer> {
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
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? "/", "http://files").pathname);
    const { range = null, authorization = null } = request.headers;
    served.requests.push({ path, range, authorization });
    if (served.intercept?.(response, path)) return;
    const list = lists.get(path);
    const file = files.get(path);
    if (list) response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(list));
    else if (file) sendFile(file, request, response);
    else response.writeHead(404).end("not found");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  served.url = `http://127.0.0.1:${address && typeof address === "object" ? address.port : 0}`;
  return served;
}

function sendFile(
  { bytes, etag }: { bytes: Uint8Array; etag: string | null },
  request: IncomingMessage,
  response: ServerResponse,
): void {
  response.setHeader("accept-ranges", "bytes");
  if (etag) response.setHeader("etag", etag);
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? "-1");
  const ifRange = request.headers["if-range"];
  if (start < 0 || (ifRange && ifRange !== etag)) {
    response.writeHead(200, { "content-length": bytes.length }).end(bytes);
  } else if (start >= bytes.length) response.writeHead(416).end();
  else {
    const rest = bytes.subarray(start);
    response.setHeader("content-range", `bytes ${start}-${bytes.length - 1}/${bytes.length}`);
    response.writeHead(206, { "content-length": rest.length }).end(rest);
  }
}

/** Promises a file, sends its first bytes, then stays silent. */
export function sendStart(
  response: ServerResponse,
  start: { bytes: Uint8Array; promisedBytes: number; etag: string },
): true {
  response.writeHead(200, { etag: start.etag, "content-length": start.promisedBytes });
  response.write(start.bytes);
  return true;
}

export function sendStatus(
  response: ServerResponse,
  status: number,
  headers: Record<string, string> = {},
): true {
  response.writeHead(status, headers).end();
  return true;
}
