import type { ServerWebSocket } from "bun";
import type { Dispatch, Flight, Flights } from "../flights.ts";
import type { VoiceResponse } from "../plot.ts";
import { countTokens, markOf } from "../tokens.ts";
import { isPlausible, reporting } from "./usage.ts";

type Event = Record<string, unknown>;

/** The vendor's figures: a token is a tenth of a second of what is heard, a twentieth of what is said. */
const HEARD_TOKENS_PER_SECOND = 10;
const SAID_TOKENS_PER_SECOND = 20;
const HEARD_BYTES_PER_SECOND = 16_000 * 2;
const SAID_BYTES_PER_SECOND = 24_000 * 2;
const PIECE_SECONDS = 0.5;
const PIECE_AUDIO = Buffer.alloc(SAID_BYTES_PER_SECOND * PIECE_SECONDS).toString("base64");
const PIECE_TOKENS = PIECE_SECONDS * SAID_TOKENS_PER_SECOND;

interface Session {
  model: string;
  flight: Flight | null;
  instructionTokens: number;
  heardTokens: number;
  /** Everything that was said so far is heard again with each response. */
  saidTokens: number;
  limit: unknown;
  responses: number;
  pieces: number;
  /** The response that is being said; cancelled by the client. */
  cancelled: boolean;
}
type Socket = ServerWebSocket<Session>;

export interface VoiceUpstream {
  url: string;
  stop(): void;
}

/** A realtime API: what it says is planned by the client of the flight whose canary the instructions carry. */
export function startVoiceUpstream(flights: Flights): VoiceUpstream {
  const send = (socket: Socket, event: Event) => socket.send(JSON.stringify({ event_id: "e", ...event }));

  async function respond(socket: Socket, asked: Event | undefined): Promise<void> {
    const session = socket.data;
    const { flight } = session;
    const plan = flight?.asked.responses?.[session.responses];
    if (!flight || !plan) return;
    const number = session.responses++;
    session.cancelled = false;
    const dispatch = flight.arrive({
      model: session.model,
      promptTokens: session.instructionTokens + session.heardTokens,
      choices: 1,
      limit: limitOf(asked, session),
      pieces: [],
      hiddenTokens: 0,
      reported: null,
      end: "open",
    });
    const id = `r${number}`;
    send(socket, { type: "response.created", response: { id, status: "in_progress" } });
    const isClosed = () => socket.readyState !== 1;
    let said = 0;
    for (let i = 0; i < plan.seconds / PIECE_SECONDS && !isClosed() && !session.cancelled; i++) {
      const text = ` ${markOf({ request: flight.modelNumber, piece: session.pieces })} lamp`;
      const tokens = PIECE_TOKENS + countTokens(text);
      if (dispatch.limit !== null && said + tokens > dispatch.limit) break;
      said += tokens;
      dispatch.pieces[session.pieces++] = tokens;
      send(socket, {
        type: "response.output_audio.delta",
        response_id: id,
        item_id: "i",
        delta: PIECE_AUDIO,
      });
      send(socket, {
        type: "response.output_audio_transcript.delta",
        response_id: id,
        item_id: "i",
        delta: text,
      });
      await new Promise((resolve) => setImmediate(resolve));
      if (plan.leaveAfter === i + 1) await flight.waitForLeaving("piece", isClosed);
    }
    finish(socket, { dispatch, plan, id, said });
  }

  function finish(
    socket: Socket,
    { dispatch, plan, id, said }: { dispatch: Dispatch; plan: VoiceResponse; id: string; said: number },
  ): void {
    const session = socket.data;
    const input = dispatch.promptTokens + session.saidTokens;
    session.saidTokens += said;
    if (socket.readyState !== 1) {
      dispatch.end = "closed";
      return;
    }
    const { final } = reporting(plan.report, input, said);
    dispatch.reported = final;
    dispatch.end = session.cancelled ? "closed" : "whole";
    const usage = final && {
      input_tokens: final.prompt,
      output_tokens: final.completion,
      total_tokens:
        isPlausible(final.prompt) && isPlausible(final.completion)
          ? final.prompt + final.completion
          : final.prompt,
    };
    const status = session.cancelled ? "cancelled" : "completed";
    send(socket, { type: "response.done", response: { id, status, output: [], ...(usage && { usage }) } });
  }

  function hear(socket: Socket, event: Event, text: string): void {
    const session = socket.data;
    switch (event.type) {
      case "session.update": {
        const { instructions, max_output_tokens: limit } = (event.session ?? {}) as Event;
        if (typeof instructions === "string") {
          session.instructionTokens = countTokens(instructions);
          session.flight ??= flights.find(text, session.model);
        }
        if (limit !== undefined) session.limit = limit;
        send(socket, { type: "session.updated", session: event.session });
        return;
      }
      case "input_audio_buffer.append": {
        const bytes = (String(event.audio ?? "").length * 3) / 4;
        session.heardTokens += Math.ceil((bytes / HEARD_BYTES_PER_SECOND) * HEARD_TOKENS_PER_SECOND);
        return;
      }
      case "input_audio_buffer.commit": {
        send(socket, { type: "input_audio_buffer.committed", item_id: "i" });
        const plan = session.flight?.asked.responses?.[session.responses];
        // It noticed that the speaker had finished, and answers without being asked to.
        if (plan?.unasked) void respond(socket, undefined);
        return;
      }
      case "response.create":
        void respond(socket, event.response as Event | undefined);
        return;
      case "response.cancel":
        session.cancelled = true;
    }
  }

  const server = Bun.serve<Session>({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request, self) {
      const model = new URL(request.url).searchParams.get("model") ?? "";
      const data: Session = {
        model,
        flight: null,
        instructionTokens: 0,
        heardTokens: 0,
        saidTokens: 0,
        limit: undefined,
        responses: 0,
        pieces: 0,
        cancelled: false,
      };
      return self.upgrade(request, { data }) ? undefined : new Response("", { status: 426 });
    },
    websocket: {
      open: (socket) => void send(socket, { type: "session.created", session: { id: "sess_1" } }),
      message: (socket, message) => {
        const text = String(message);
        hear(socket, JSON.parse(text) as Event, text);
      },
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, stop: () => void server.stop(true) };
}

/** The limit of the response, else of the session; anything that is not a positive number is none. */
function limitOf(asked: Event | undefined, { limit }: Session): number | null {
  const given = asked?.max_output_tokens ?? limit;
  return typeof given === "number" && given > 0 ? given : null;
}
