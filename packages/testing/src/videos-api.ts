/** OpenAI's videos as SGLang and vLLM-Omni serve them: words, fields and statuses are theirs. */
import { FILM } from "./video.ts";

interface Task {
  id: string;
  prompt: string;
  model: string;
  size: string;
  seconds: string;
}

const refused = (status: number, detail: unknown) => Response.json({ detail }, { status });
const notFound = () => refused(404, "Video not found");

/** A task ends as its prompt says (one that is "stuck" is taken and never answered), and clips are what `clip` answers. */
export function videosApi() {
  const tasks = new Map<string, Task>();
  const api = {
    asked: [] as Record<string, unknown>[],
    deleted: [] as string[],
    polls: 0,
    /** Those whose prompt is "slow" are made now. */
    isFast: false,
    clip: (request: Request): Response => clipOf(FILM, request),
    async fetch(request: Request): Promise<Response> {
      const [, , , id = "", content] = new URL(request.url).pathname.split("/");
      if (request.method === "POST" && id === "") return submit(request);
      if (id === "") return Response.json({ data: [...tasks.values()].map(shown), object: "list" });
      const task = tasks.get(id);
      if (!task) return notFound();
      if (request.method === "DELETE") {
        api.deleted.push(id);
        tasks.delete(id);
        return Response.json({ ...shown(task), status: "deleted" });
      }
      if (!content) api.polls++;
      if (!content) return Response.json(shown(task));
      return shown(task).status === "completed" ? api.clip(request) : notFound();
    },
  };

  async function submit(request: Request): Promise<Response> {
    if (!request.headers.get("content-type")?.startsWith("multipart/form-data; boundary="))
      return refused(422, [{ type: "missing", loc: ["body", "prompt"], msg: "Field required" }]);
    const form = (await request.formData()) as unknown as Iterable<[string, unknown]>;
    const fields = Object.fromEntries(form);
    const { prompt, model = "", size = "", seconds = "4" } = fields as Record<string, string>;
    if (!prompt || !/^\d+$/.test(seconds))
      return refused(422, [{ type: "int_parsing", loc: ["body", "seconds"], msg: "no valid integer" }]);
    api.asked.push(fields);
    if (prompt === "stuck") await new Promise(() => {});
    const task = { id: crypto.randomUUID(), prompt, model, size, seconds };
    tasks.set(task.id, task);
    return Response.json({ ...shown(task), status: "queued", progress: 0 });
  }

  function shown({ prompt, ...task }: Task) {
    const state =
      prompt === "broken"
        ? { status: "failed", progress: 0, error: { message: "out of memory" } }
        : prompt === "slow" && !api.isFast
          ? { status: "in_progress", progress: 40, error: null }
          : { status: "completed", progress: 100, error: null };
    return { ...task, ...state, object: "video", created_at: 1_780_000_000, quality: "standard", url: null };
  }
  return api;
}

/** As a file is served: whole, or the range that is asked for. */
export function clipOf(film: Uint8Array<ArrayBuffer>, request: Request): Response {
  const headers = { "content-type": "video/mp4", "accept-ranges": "bytes" };
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.get("range") ?? "") ?? [];
  if (first === undefined) return new Response(film, { headers });
  const end = Math.min(Number(last || film.length - 1), film.length - 1);
  return new Response(film.slice(Number(first), end + 1), {
    status: 206,
    headers: { ...headers, "content-range": `bytes ${first}-${end}/${film.length}` },
  });
}
