import { useEffect, useRef, useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { type Microphone, openMicrophone, Speaker } from "./audio.ts";

export interface Line {
  id: number;
  who: "you" | "model";
  text: string;
}

export interface VoiceState {
  state: "idle" | "starting" | "live";
  level: number;
  lines: readonly Line[];
  /** Names of the latest events, newest first. */
  events: readonly string[];
  error: unknown;
}

const IDLE: VoiceState = { state: "idle", level: 0, lines: [], events: [], error: null };
const EVENTS_KEPT = 30;
/** Blocks that may wait for their call to return; more means that the connection does not keep up. */
const BLOCKS_IN_FLIGHT_MAX = 50;

const audioOf = (event: { type: string; [field: string]: unknown }) =>
  /^response\.(output_)?audio\.delta$/.test(event.type) && typeof event.delta === "string"
    ? event.delta
    : null;
const wordsOf = (event: {
  type: string;
  [field: string]: unknown;
}): { who: Line["who"]; delta: string } | null => {
  if (typeof event.delta === "string" && /transcript\.delta$|(output_)?text\.delta$/.test(event.type))
    return { who: "model", delta: event.delta };
  if (event.type.endsWith("input_audio_transcription.completed") && typeof event.transcript === "string")
    return { who: "you", delta: event.transcript };
  return null;
};

/** Words of the one who is speaking go on; the other's begin a new line. */
function withWords(lines: readonly Line[], { who, delta }: { who: Line["who"]; delta: string }): Line[] {
  const last = lines.at(-1);
  if (last?.who === who) return [...lines.slice(0, -1), { ...last, text: last.text + delta }];
  return [...lines, { id: lines.length, who, text: delta }];
}

/** One conversation by voice: the microphone out, the events and the sound in. */
export function useVoice() {
  const [state, setState] = useState<VoiceState>(IDLE);
  const end = useRef<() => void>(() => {});
  const change = (fields: Partial<VoiceState>) => setState((now) => ({ ...now, ...fields }));
  useEffect(() => () => end.current(), []);

  const start = async (model: string) => {
    setState({ ...IDLE, state: "starting" });
    const aborter = new AbortController();
    let microphone: Microphone | null = null;
    let speaker: Speaker | null = null;
    let sessionId: string | null = null;
    let inFlight = 0;
    end.current = () => {
      end.current = () => {};
      aborter.abort();
      microphone?.stop();
      speaker?.close();
      if (sessionId) void api("realtime.stop", { session_id: sessionId }).catch(() => {});
      change({ state: "idle", level: 0 });
    };
    try {
      const session = await api("realtime.start", { model });
      sessionId = session.session_id;
      speaker = new Speaker();
      microphone = await openMicrophone((audio, level) => {
        change({ level });
        if (inFlight >= BLOCKS_IN_FLIGHT_MAX) return;
        inFlight++;
        void api("realtime.event", {
          session_id: session.session_id,
          event: { type: "input_audio_buffer.append", audio },
        })
          .catch((error: unknown) => change({ error }))
          .finally(() => inFlight--);
      });
      change({ state: "live" });
      for await (const { method, params } of client.events(session.stream_session, {
        signal: aborter.signal,
      })) {
        if (method !== "realtime.event") continue;
        const { event } = params;
        const audio = audioOf(event);
        const words = wordsOf(event);
        if (audio !== null) speaker.play(audio);
        setState((now) => ({
          ...now,
          events: [event.type, ...now.events].slice(0, EVENTS_KEPT),
          lines: words ? withWords(now.lines, words) : now.lines,
        }));
      }
    } catch (error) {
      if (!aborter.signal.aborted) change({ error });
    }
    end.current();
  };
  return { ...state, start, stop: () => end.current() };
}
