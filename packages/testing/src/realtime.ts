import type { ServerWebSocket } from "bun";

type Event = Record<string, unknown>;

export interface RealtimeUpstream {
  url: string;
  /** Everything that clients sent, in order. */
  received: Event[];
  /** Authorization headers of the connections. */
  authorizations: (string | null)[];
  models: (string | null)[];
  /** Types of events that it takes and does not answer. */
  silentOn: Set<unknown>;
  /** Sends an event to every open session. */
  emit(event: Event): void;
  sendRaw(text: string): void;
  closeAll(code?: number, reason?: string): void;
  sessions(): number;
  stop(): void;
}

const NAMES = {
  openai: {
    path: "/v1/realtime",
    audio: "response.output_audio.delta",
    transcript: "response.output_audio_transcript.done",
    details: "input_token_details",
  },
  dashscope: {
    path: "/api-ws/v1/realtime",
    audio: "response.audio.delta",
    transcript: "response.audio_transcript.done",
    details: "input_tokens_details",
  },
} as const;

/** OpenAI's least piece of audio: 100 ms at 24 kHz. */
const COMMIT_BYTES_MIN = 4_800;

/**
 * A realtime API as the vendor speaks it: creates the session, echoes appended audio back as output, and
 * answers response.create with audio, a transcript and usage, unless the test answers.
 */
export function startRealtimeUpstream(
  dialect: keyof typeof NAMES,
  { echoAudio = false, answers = true } = {},
): RealtimeUpstream {
  const names = NAMES[dialect];
  const open = new Set<ServerWebSocket<unknown>>();
  const bufferedBytes = new WeakMap<ServerWebSocket<unknown>, number>();
  const silentOn = new Set<unknown>();
  const received: Event[] = [];
  const authorizations: (string | null)[] = [];
  const models: (string | null)[] = [];
  let eventNumber = 0;
  const send = (socket: ServerWebSocket<unknown>, event: Event) =>
    socket.send(JSON.stringify({ event_id: `e${eventNumber++}`, ...event }));

  function commit(socket: ServerWebSocket<unknown>, { event_id }: Event): void {
    const code = "input_audio_buffer_commit_empty";
    const isRefused = dialect === "openai" && (bufferedBytes.get(socket) ?? 0) < COMMIT_BYTES_MIN;
    if (!isRefused) bufferedBytes.delete(socket);
    const refusal = { type: "error", error: { code, message: "buffer too small", event_id } };
    send(socket, isRefused ? refusal : { type: "input_audio_buffer.committed", item_id: "i" });
  }

  function answer(socket: ServerWebSocket<unknown>, event: Event): void {
    if (event.type === "input_audio_buffer.append")
      bufferedBytes.set(socket, (bufferedBytes.get(socket) ?? 0) + (String(event.audio).length * 3) / 4);
    if (silentOn.has(event.type)) return;
    if (event.type === "session.update") send(socket, { type: "session.updated", session: event.session });
    if (event.type === "input_audio_buffer.append" && echoAudio)
      send(socket, { type: names.audio, response_id: "r", delta: event.audio });
    if (event.type === "input_audio_buffer.clear") {
      bufferedBytes.delete(socket);
      send(socket, { type: "input_audio_buffer.cleared" });
    }
    if (event.type === "input_audio_buffer.commit") commit(socket, event);
    if (event.type !== "response.create" || !answers) return;
    const usage = {
      total_tokens: 150,
      input_tokens: 100,
      output_tokens: 50,
      [names.details]: { text_tokens: 40, audio_tokens: 60 },
    };
    send(socket, { type: "response.created", response: { id: "r", status: "in_progress" } });
    send(socket, { type: names.audio, response_id: "r", delta: "AAAA" });
    send(socket, { type: names.transcript, response_id: "r", item_id: "i", transcript: "hello there" });
    send(socket, { type: "response.done", response: { id: "r", status: "completed", output: [], usage } });
  }

  const server = Bun.serve({
    port: 0,
    fetch(request, self) {
      const url = new URL(request.url);
      if (url.pathname !== names.path) return new Response("no", { status: 404 });
      authorizations.push(request.headers.get("authorization"));
      models.push(url.searchParams.get("model"));
      if (self.upgrade(request)) return undefined;
      return new Response("expected a WebSocket", { status: 426 });
    },
    websocket: {
      open(socket) {
        open.add(socket);
        send(socket, { type: "session.created", session: { id: "sess_1", object: "realtime.session" } });
      },
      message(socket, text) {
        const event = JSON.parse(String(text)) as Event;
        if (received.length < 10_000) received.push(event);
        answer(socket, event);
      },
      close: (socket) => void open.delete(socket),
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}${dialect === "dashscope" ? names.path : ""}`,
    received,
    authorizations,
    models,
    silentOn,
    emit: (event) => open.forEach((socket) => void send(socket, event)),
    sendRaw: (text) => open.forEach((socket) => void socket.send(text)),
    closeAll: (code, reason) => open.forEach((socket) => void socket.close(code, reason)),
    sessions: () => open.size,
    stop: () => void server.stop(true),
  };
}
