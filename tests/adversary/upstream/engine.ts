import {
  NO_ANSWER,
  type ReceivedCall,
  RpcFailure,
  type RpcSocketServer,
  startRpcSocketServer,
} from "@model-gateway/testing/rpc-socket-server.ts";
import type { Flight, Flights } from "../flights.ts";
import {
  memberOf,
  newDispatch,
  note,
  type Piece,
  piecesOf,
  reportingOf,
  type Served,
  usageOf,
  wholePieces,
} from "./chat.ts";
import { modelOf, readChat } from "./reading.ts";

export interface EngineUpstream {
  url: string;
  stop(): void;
}

/**
 * An engine on a WebSocket. Many requests share a connection, so it never fails on purpose: an error would end
 * answers that it is not about.
 */
export function startEngineUpstream(flights: Flights, models: readonly string[]): EngineUpstream {
  const cancelled = new Set<string>();
  const server: RpcSocketServer = startRpcSocketServer((call) => {
    // The server keeps everything that it was sent; a storm is long.
    server.received.length = 0;
    switch (call.method) {
      case "Engine.Handshake":
        return { name: "storm", version: "1", protocol: 1, capabilities: ["chat", "chat_stream"] };
      case "Engine.Models":
        return { models: models.map((id) => ({ id })) };
      case "Engine.Chat":
        return answerWhole(open(flights, call), call);
      case "Engine.ChatStart":
        void stream(open(flights, call), call, cancelled);
        return { stream_id: call.params.stream_id };
      case "Engine.ChatCancel":
        cancelled.add(call.params.stream_id);
        return NO_ANSWER;
      default:
        throw new RpcFailure(-32601, `Method not found: ${call.method}`);
    }
  });
  return { url: server.url, stop: () => void server.stop() };
}

interface Opened extends Served {
  flight: Flight;
}

function open(flights: Flights, { params }: ReceivedCall): Opened {
  const reading = readChat(params);
  const flight = flights.find(JSON.stringify(params), modelOf(params));
  if (!flight) throw new RpcFailure(-32000, "whose is this?");
  return { flight, reading, dispatch: flight.arrive(newDispatch(reading)) };
}

const deltaOf = ({ asked }: Flight, piece: Piece, streamed: boolean) =>
  memberOf(asked.plan.member, piece, streamed);

async function answerWhole(served: Opened, { peer }: ReceivedCall): Promise<unknown> {
  const { flight, reading, dispatch } = served;
  const isClosed = () => !peer.open;
  for (const moment of ["dispatch", "piece", "usage"] as const) await flight.waitForLeaving(moment, isClosed);
  const pieces = piecesOf(flight, { ...reading, choices: 1 });
  const { running, final } = reportingOf(served, pieces);
  for (const piece of pieces) note(dispatch, piece);
  const [whole] = wholePieces(pieces);
  dispatch.reported = final ?? running;
  dispatch.end = isClosed() ? "closed" : "whole";
  return {
    message: { role: "assistant", content: null, ...deltaOf(flight, whole!, false) },
    finish_reason: "stop",
    ...(dispatch.reported && { usage: usageOf(dispatch.reported) }),
  };
}

async function stream(served: Opened, { params, peer }: ReceivedCall, cancelled: Set<string>): Promise<void> {
  const { flight, reading, dispatch } = served;
  const { stream_id } = params;
  const isClosed = () => !peer.open || cancelled.has(stream_id);
  const pieces = piecesOf(flight, { ...reading, choices: 1 });
  const { running, final } = reportingOf(served, pieces);
  const { leave } = flight.asked;
  const chunk = (fields: Record<string, unknown>) =>
    peer.notify("Engine.ChatChunk", { stream_id, ...fields });
  // The answer to the call that started it goes first.
  await new Promise((resolve) => setImmediate(resolve));
  await flight.waitForLeaving("dispatch", isClosed);
  for (const [i, piece] of pieces.entries()) {
    if (isClosed()) break;
    note(dispatch, piece);
    if (running) dispatch.reported = running;
    chunk({
      delta: deltaOf(flight, piece, true),
      finish_reason: null,
      done: false,
      ...(running && { usage: usageOf(running) }),
    });
    if (leave.at === "piece" && Math.min(leave.piece, pieces.length) === i + 1)
      await flight.waitForLeaving("piece", isClosed);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await flight.waitForLeaving("usage", isClosed);
  dispatch.end = isClosed() ? "closed" : "whole";
  if (dispatch.end === "whole") {
    dispatch.reported = final ?? dispatch.reported;
    chunk({ delta: {}, finish_reason: "stop", done: true, ...(final && { usage: usageOf(final) }) });
  }
  cancelled.delete(stream_id);
}
