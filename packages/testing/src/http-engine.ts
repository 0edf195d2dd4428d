import { createServer, type ServerResponse } from "node:http";

export interface Engine {
  baseUrl: string;
  /** Responses now open on the engine. */
  open(): number;
  /** Bytes that /flood has written so far. */
  floodedBytes(): number;
  stop(): void;
}

/** /echo returns the request body; /flood writes 64 MiB; /tokens?n=&ms= sends n events; /hang never answers. */
export async function startEngine(): Promise<Engine> {
  let open = 0;
  let flooded = 0;
  const server = createServer((request, response) => {
    open++;
    response.on("close", () => open--);
    const url = new URL(request.url ?? "/", "http://engine");
    if (url.pathname === "/echo") {
      response.writeHead(200, {
        "content-type": request.headers["content-type"] ?? "none",
        "x-authorization": request.headers.authorization ?? "none",
        "x-length": request.headers["content-length"] ?? "none",
      });
      request.pipe(response);
    } else if (url.pathname === "/flood") {
      flooded = 0;
      flood(response, (bytes) => {
        flooded += bytes;
      });
    } else if (url.pathname === "/tokens")
      sendTokens(response, Number(url.searchParams.get("n")), Number(url.searchParams.get("ms")));
    else if (url.pathname === "/break") {
      response.writeHead(200);
      response.write("first", () => setTimeout(() => response.destroy(), 20));
    } else if (url.pathname === "/early") {
      response.writeHead(413, { connection: "close" });
      response.end("too large");
    } else if (url.pathname === "/empty") response.writeHead(204).end();
    else if (url.pathname !== "/hang") response.writeHead(404).end("no such path");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (!address || typeof address === "string") throw new Error("the engine has no port");
  return {
    baseUrl: `http://127.0.0.1:${address.port}`,
    open: () => open,
    floodedBytes: () => flooded,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export const FLOOD_BYTES = 64 * 1024 * 1024;

function flood(response: ServerResponse, wrote: (bytes: number) => void): void {
  const piece = Buffer.alloc(64 * 1024, 7);
  let left = FLOOD_BYTES;
  const push = () => {
    while (left > 0 && !response.destroyed) {
      left -= piece.length;
      wrote(piece.length);
      if (!response.write(piece)) {
        response.once("drain", push);
        return;
      }
    }
    response.end();
  };
  push();
}

function sendTokens(response: ServerResponse, count: number, everyMs: number): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  let sent = 0;
  const timer = setInterval(() => {
    response.write(`data: ${sent++}\n\n`);
    if (sent >= count) {
      clearInterval(timer);
      response.end();
    }
  }, everyMs);
  response.on("close", () => clearInterval(timer));
}
