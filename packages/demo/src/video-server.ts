import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { FILM, FILM_TYPE } from "./film.ts";

export const VIDEO_MODEL = "demo-video";
const FILE_ID = "1";
const FILM_PATH = "/files/film.webm";
const done = { status_code: 0, status_msg: "success" };

export interface DemoVideoServer {
  /** Base URL to register as a `minimax` backend. */
  url: string;
  stop(): Promise<void>;
}

/**
 * A video service that has the same film for every prompt, in the words of MiniMax's API. Links to finished videos
 * name its port, so it takes the one that it had before, unless something else has that now.
 */
export function startDemoVideoServer(portFile: string): DemoVideoServer {
  const server = listen(existsSync(portFile) ? Number(readFileSync(portFile, "utf8")) : 0);
  mkdirSync(dirname(portFile), { recursive: true, mode: 0o700 });
  writeFileSync(portFile, String(server.port));
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}

function listen(port: number) {
  try {
    return serve(port);
  } catch {
    return serve(0);
  }
}

function serve(port: number) {
  let tasks = 0;
  return Bun.serve({
    hostname: "127.0.0.1",
    port,
    fetch(request) {
      const url = new URL(request.url);
      switch (url.pathname) {
        case "/v1/video_generation":
          return Response.json({ task_id: `demo-${++tasks}`, base_resp: done });
        case "/v1/query/video_generation":
          return Response.json({
            task_id: url.searchParams.get("task_id"),
            status: "Success",
            file_id: FILE_ID,
            video_width: 160,
            video_height: 90,
            base_resp: done,
          });
        case "/v1/files/retrieve":
          return Response.json({
            file: { file_id: FILE_ID, download_url: `${url.origin}${FILM_PATH}` },
            base_resp: done,
          });
        case FILM_PATH:
          return new Response(FILM, { headers: { "content-type": FILM_TYPE } });
      }
      return request.method === "HEAD" ? new Response() : new Response("not found", { status: 404 });
    },
  });
}
