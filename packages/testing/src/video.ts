export interface VideoUpstream {
  url: string;
  /** Bodies of the submissions, in order. */
  submissions: Record<string, unknown>[];
  polls: number;
  authorizations: (string | null)[];
  /** What the next polls answer; the last one stays. */
  script: (() => Response | Promise<Response>)[];
  onSubmit: (() => Response) | null;
  /** Where finished films are said to be; null: on this very server, which then has one. */
  downloadUrl: string | null;
  stop(): void;
}

export const minimax = {
  status:
    (status: string, more: Record<string, unknown> = {}) =>
    () =>
      Response.json({ task_id: "t", status, base_resp: { status_code: 0, status_msg: "success" }, ...more }),
  /** Written by hand, because the file id does not fit a JavaScript number. */
  success: () =>
    new Response(
      '{"task_id":"t","status":"Success","file_id":9007199254740993,"video_width":1366,"video_height":768,"base_resp":{"status_code":0}}',
    ),
  refused: (status_code: number, status_msg: string) => () =>
    Response.json({ base_resp: { status_code, status_msg } }),
};

const FILM_PATH = "/files/film.mp4";
/** The file-type box that every MP4 begins with, and an empty media box. */
export const FILM = Buffer.from(
  "0000001c6674797069736f6d0000020069736f6d69736f326d70343100000008" + "6d646174",
  "hex",
);

/** MiniMax's video API: submit, query, retrieve, each as the vendor words it. */
export function startMinimax(): VideoUpstream {
  const state: Omit<VideoUpstream, "url" | "stop"> = {
    submissions: [],
    polls: 0,
    authorizations: [],
    script: [minimax.status("Queueing"), minimax.success],
    onSubmit: null,
    downloadUrl: "https://cdn.example/v.mp4",
  };
  const server = Bun.serve({
    port: 0,
    async fetch(request) {
      const url = new URL(request.url);
      if (request.method === "HEAD") return new Response();
      state.authorizations.push(request.headers.get("authorization"));
      if (url.pathname === "/v1/video_generation") {
        state.submissions.push((await request.json()) as Record<string, unknown>);
        return (
          state.onSubmit?.() ??
          Response.json({
            task_id: `t${state.submissions.length}`,
            base_resp: { status_code: 0, status_msg: "success" },
          })
        );
      }
      if (url.pathname === "/v1/query/video_generation") {
        state.polls++;
        const next = state.script.length > 1 ? state.script.shift()! : state.script[0]!;
        return next();
      }
      if (url.pathname === "/v1/files/retrieve" && url.searchParams.get("file_id") === "9007199254740993") {
        return Response.json({
          file: { file_id: 1, download_url: state.downloadUrl ?? `${url.origin}${FILM_PATH}` },
          base_resp: { status_code: 0 },
        });
      }
      if (url.pathname === FILM_PATH) return new Response(FILM, { headers: { "content-type": "video/mp4" } });
      return new Response("not found", { status: 404 });
    },
  });
  return Object.assign(state, { url: `http://127.0.0.1:${server.port}`, stop: () => void server.stop(true) });
}
