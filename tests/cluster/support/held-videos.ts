/** Where an answer can be held back, so that a job stands still in one state. */
export type Point = "submit" | "poll" | "file" | "cancel";

interface Hold {
  /** Calls that wait here. */
  waiting: number;
  /** Callers that hung up while they waited. */
  leftCount: number;
  ended: PromiseWithResolvers<void>;
}

const key = (point: Point, prompt: string) => `${point} ${prompt}`;

/**
 * Two video APIs on one port, MiniMax v1 (with its file step) and DashScope (with its cancellation), each as the
 * vendor words it. A task's id is its prompt, so a test can say what happens to which job.
 */
export class HeldVideos {
  readonly #calls = new Map<string, number>();
  readonly #holds = new Map<string, Hold>();
  /** Prompts whose tasks are not finished yet, and those that never will be. */
  readonly pending = new Set<string>();
  readonly failing = new Set<string>();
  readonly #cancelled = new Set<string>();
  readonly #server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    routes: {
      "/v1/video_generation": async (request) => {
        const { prompt } = (await request.json()) as { prompt: string };
        await this.#arrive("submit", prompt, request.signal);
        return Response.json({ task_id: prompt, base_resp: { status_code: 0 } });
      },
      "/v1/query/video_generation": async (request) => {
        const prompt = new URL(request.url).searchParams.get("task_id")!;
        await this.#arrive("poll", prompt, request.signal);
        return Response.json({ ...this.#minimaxState(prompt), task_id: prompt });
      },
      "/v1/files/retrieve": async (request) => {
        const prompt = new URL(request.url).searchParams.get("file_id")!;
        await this.#arrive("file", prompt, request.signal);
        const file = { download_url: `https://cdn.example/${prompt}.mp4` };
        return Response.json({ file, base_resp: { status_code: 0 } });
      },
      "/api/v1/services/aigc/video-generation/video-synthesis": async (request) => {
        const { input } = (await request.json()) as { input: { prompt: string } };
        await this.#arrive("submit", input.prompt, request.signal);
        return Response.json({ output: { task_id: input.prompt, task_status: "PENDING" } });
      },
      "/api/v1/tasks/:id": async (request) => {
        const prompt = request.params.id;
        await this.#arrive("poll", prompt, request.signal);
        const output = this.#cancelled.has(prompt)
          ? { task_status: "CANCELED" }
          : this.pending.has(prompt)
            ? { task_status: "RUNNING" }
            : { task_status: "SUCCEEDED", video_url: `https://cdn.example/${prompt}.mp4` };
        return Response.json({ output });
      },
      "/api/v1/tasks/:id/cancel": async (request) => {
        await this.#arrive("cancel", request.params.id, request.signal);
        this.#cancelled.add(request.params.id);
        return Response.json({ request_id: "r" });
      },
    },
    fetch: () => new Response(null, { status: 404 }),
  });

  get url(): string {
    return `http://127.0.0.1:${this.#server.port}`;
  }

  stop(): void {
    void this.#server.stop(true);
  }

  /** How many calls of this kind came in for the prompt. */
  count(point: Point, prompt: string): number {
    return this.#calls.get(key(point, prompt)) ?? 0;
  }

  /** From now on this answer waits until it is let go. */
  hold(point: Point, prompt: string): void {
    this.#holds.set(key(point, prompt), { waiting: 0, leftCount: 0, ended: Promise.withResolvers() });
  }

  isHeld(point: Point, prompt: string): boolean {
    return (this.#holds.get(key(point, prompt))?.waiting ?? 0) > 0;
  }

  /** Whether the gateway hung up on an answer that is held back. */
  wasLeft(point: Point, prompt: string): boolean {
    return (this.#holds.get(key(point, prompt))?.leftCount ?? 0) > 0;
  }

  letGo(points: readonly Point[] = ["submit", "poll", "file", "cancel"]): void {
    for (const [name, { ended }] of this.#holds)
      if (points.some((point) => name.startsWith(`${point} `))) ended.resolve();
  }

  async #arrive(point: Point, prompt: string, signal: AbortSignal): Promise<void> {
    const name = key(point, prompt);
    this.#calls.set(name, (this.#calls.get(name) ?? 0) + 1);
    const hold = this.#holds.get(name);
    if (!hold) return;
    hold.waiting++;
    signal.addEventListener("abort", () => hold.leftCount++, { once: true });
    await hold.ended.promise;
  }

  #minimaxState(prompt: string): Record<string, unknown> {
    if (this.failing.has(prompt))
      return { status: "Fail", base_resp: { status_code: 1027, status_msg: "sensitive" } };
    const base_resp = { status_code: 0 };
    return this.pending.has(prompt)
      ? { status: "Processing", base_resp }
      : { status: "Success", file_id: prompt, base_resp };
  }
}
