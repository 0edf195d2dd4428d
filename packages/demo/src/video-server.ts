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

/** A video service that has the same film for every prompt, in the words of MiniMax's API. */
export function startDemoVideoServer(): DemoVideoServer {
  let tasks = 0;
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
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
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}
