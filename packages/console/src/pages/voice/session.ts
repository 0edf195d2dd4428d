import { useEffect, useRef, useState } from "react";
import { api } from "../../lib/api.ts";
import { client } from "../../lib/client.ts";
import { Told } from "../../lib/told.ts";
import { type Microphone, openMicrophone, Speaker } from "./audio.ts";
import {
  audioOf,
  closingOf,
  errorOf,
  isInterruption,
  isRealtimeEvent,
  type Line,
  type RealtimeEvent,
  withWords,
} from "./events.ts";

export interface VoiceState {
  state: "idle" | "starting" | "live";
  level: number;
  lines: readonly Line[];
  /** Names of the latest events, newest first. */
  events: readonly string[];
  /** Sound of the model's that has been queued for playing. */
  voiceSeconds: number;
  error: unknown;
}

const IDLE: VoiceState = { state: "idle", level: 0, lines: [], events: [], voiceSeconds: 0, error: null };
const EVENTS_KEPT = 30;
/** Blocks that may wait for their call to return; more means that the connection is too slow. */
const BLOCKS_IN_FLIGHT_MAX = 50;

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
    const hear = (event: RealtimeEvent) => {
      const closing = closingOf(event);
      if (closing !== null) throw new Told("The session has ended", `The other side closed it: ${closing}.`);
      const audio = audioOf(event);
      const playedSeconds = audio === null ? 0 : (speaker?.play(audio) ?? 0);
      if (isInterruption(event)) speaker?.hush();
      const problem = errorOf(event);
      setState((now) => ({
        ...now,
        events: [event.type, ...now.events].slice(0, EVENTS_KEPT),
        lines: withWords(now.lines, event),
        voiceSeconds: now.voiceSeconds + playedSeconds,
        error: problem === null ? now.error : new Told("The model reports an error", problem),
      }));
    };
    const speak = async (session_id: string) => {
      const opened = await openMicrophone((audio, level) => {
        // A block that was under way when the user hung up would leave the meter where it was.
        if (aborter.signal.aborted) return;
        change({ level });
        if (inFlight >= BLOCKS_IN_FLIGHT_MAX) return;
        inFlight++;
        void api("realtime.event", { session_id, event: { type: "input_audio_buffer.append", audio } })
          .catch((error: unknown) => {
            // Blocks on their way when the session ends are refused; why it ended is what counts.
            if (!aborter.signal.aborted) change({ error });
          })
          .finally(() => inFlight--);
      });
      // If the user hangs up while the browser still asks for the microphone, it must not stay open.
      if (aborter.signal.aborted) return opened.stop();
      microphone = opened;
      change({ state: "live" });
    };
    try {
      const session = await api("realtime.start", { model });
      sessionId = session.session_id;
      speaker = new Speaker();
      const refused = Promise.withResolvers<never>();
      const { signal } = aborter;
      // Subscribe before opening the microphone: granting it takes time, and events do not wait.
      const onOpen = () => void speak(session.session_id).catch(refused.reject);
      const listen = async () => {
        for await (const { method, params } of client.events(session.stream_session, { signal, onOpen }))
          if (method === "realtime.event" && isRealtimeEvent(params.event)) hear(params.event);
      };
      await Promise.race([listen(), refused.promise]);
    } catch (error) {
      if (!aborter.signal.aborted) change({ error });
    }
    end.current();
  };
  return { ...state, start, stop: () => end.current() };
}
