export const VOICE_MODEL = "demo-voice";
const ECHO_AFTER_MS = 800;
/** The console sends 16 kHz and plays 24 kHz: three samples for two. */
const [IN, OUT] = [2, 3];

export interface DemoVoiceServer {
  /** Base URL to register as a `cloud-realtime` backend. */
  url: string;
  stop(): Promise<void>;
}

/** The same sound at the rate that is played. */
function resampled(base64: string): string {
  const bytes = Buffer.from(base64, "base64");
  const heard = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + (bytes.length & ~1)));
  const said = new Int16Array(Math.floor((heard.length * OUT) / IN));
  for (let i = 0; i < said.length; i++) said[i] = heard[Math.floor((i * IN) / OUT)]!;
  return Buffer.from(said.buffer).toString("base64");
}

/** A voice that repeats what it hears, a moment later, in the words of OpenAI's realtime API. */
export function startDemoVoiceServer(): DemoVoiceServer {
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch: (request, self) => (self.upgrade(request) ? undefined : new Response("a voice", { status: 426 })),
    websocket: {
      open: (socket) => void socket.send(JSON.stringify({ type: "session.created", session: {} })),
      message(socket, text) {
        const { type, audio } = JSON.parse(String(text)) as { type?: string; audio?: string };
        if (type !== "input_audio_buffer.append" || audio === undefined) return;
        const echo = { type: "response.output_audio.delta", response_id: "echo", delta: resampled(audio) };
        setTimeout(() => socket.send(JSON.stringify(echo)), ECHO_AFTER_MS);
      },
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => server.stop(true) };
}
