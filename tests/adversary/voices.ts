import { canaryText, type Flight } from "./flights.ts";
import type { VoiceStep } from "./plot.ts";
import type { Stage } from "./stage.ts";
import { textOf } from "./tokens.ts";

const SAMPLE_BYTES_PER_SECOND = 16_000 * 2;
/** A response that has not come to its end by then will not: the session was ended, or refused it. */
const RESPONSE_WITHIN_MS = 2_500;

/** What the notification channel of a session has brought so far. */
class Listener {
  done = 0;
  closed = false;
  readonly #abort = new AbortController();

  constructor(
    readonly flight: Flight,
    url: string,
    token: string,
  ) {
    void this.#listen(url, token);
  }

  async #listen(url: string, token: string): Promise<void> {
    try {
      const headers = { authorization: `Bearer ${token}` };
      const response = await fetch(url, { headers, signal: this.#abort.signal });
      const decoder = new TextDecoder();
      let rest = "";
      for await (const chunk of response.body ?? []) {
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) this.#hear(line);
      }
    } catch {
      // The session is over for this client, however it ended.
    }
    this.closed = true;
  }

  #hear(line: string): void {
    this.flight.see(line);
    if (line.includes('"type":"response.done"')) this.done++;
    if (line.includes('"type":"session.closed"')) this.closed = true;
  }

  stop(): void {
    this.#abort.abort();
  }
}

/** A voice session from its start to its end, or to the moment at which the client has heard enough. */
export async function speak(stage: Stage, flight: Flight, step: VoiceStep, token: string): Promise<void> {
  const { outcome } = flight;
  const instance = stage.at(step.instance);
  const other = stage.at(step.instance + 1);
  const instructions = `${canaryText(flight.canary)} ${textOf("prose", step.instructions)}`;
  const params = { model: `voice-${flight.modelNumber}`, config: { instructions } };
  let sessionId: string;
  let listener: Listener;
  try {
    const session = await instance.rpc("realtime.start", params, token);
    sessionId = session.session_id;
    listener = new Listener(flight, `${other.url}/api/rpc/events?session=${session.stream_session}`, token);
    outcome.status = 200;
  } catch (error) {
    outcome.words = (error as Error).message;
    return;
  }
  /** False: the session is gone, or it refuses. */
  const tell = (event: Record<string, unknown>) =>
    other.rpc("realtime.event", { session_id: sessionId, event }, token).then(
      () => true,
      (error: Error) => {
        outcome.words = error.message;
        return false;
      },
    );
  try {
    if (step.audioSeconds > 0) {
      const audio = Buffer.alloc(SAMPLE_BYTES_PER_SECOND * step.audioSeconds).toString("base64");
      await tell({ type: "input_audio_buffer.append", audio });
    }
    for (const [i, response] of step.responses.entries()) {
      const before = outcome.seen.size;
      const asked = response.unasked ? "input_audio_buffer.commit" : "response.create";
      if (!(await tell({ type: asked }))) return;
      const end = () =>
        listener.closed ||
        listener.done > i ||
        (response.leaveAfter !== null && outcome.seen.size - before >= response.leaveAfter);
      for (const deadline = Date.now() + RESPONSE_WITHIN_MS; !end() && Date.now() < deadline; )
        await Bun.sleep(5);
      if (listener.closed) return;
      if (listener.done <= i) break;
    }
    outcome.left = listener.done < step.responses.length;
    if (step.byEvent) await tell({ type: "session.stop" });
    else await instance.rpc("realtime.stop", { session_id: sessionId }, token).catch(() => {});
  } finally {
    listener.stop();
  }
}
