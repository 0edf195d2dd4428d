/** Requests and WebSocket frames as lines for a model. */
import type { NetworkEntry, SocketEntry } from "../capture/network.ts";

const urlCharsMax = 200;
const payloadCharsMax = 200;
const framesPerSocketMax = 20;

/** One line; line breaks from the page are removed. */
function short(text: string, charsMax: number): string {
  const line = text.slice(0, charsMax).replace(/\s+/g, " ");
  return text.length > charsMax ? `${line}…` : line;
}

export function networkLines(entries: readonly NetworkEntry[]): string[] {
  return entries.map((entry) => {
    const outcome = entry.error ?? entry.status ?? "pending";
    const took = entry.duration_ms === null ? "" : ` ${entry.duration_ms} ms`;
    return `${entry.id} ${entry.method} ${short(entry.url, urlCharsMax)} ${outcome} ${entry.resource_type}${took}`;
  });
}

export function socketLines(sockets: readonly SocketEntry[]): string[] {
  return sockets.flatMap((socket) => {
    const frames = socket.frames.slice(-framesPerSocketMax);
    const left = socket.frames.length - frames.length + socket.frames_dropped;
    return [
      `${socket.id} ${short(socket.url, urlCharsMax)} ${socket.error ?? socket.state}`,
      ...(left > 0 ? [`  … ${left} earlier frames`] : []),
      ...frames.map(
        ({ direction, payload }) =>
          `  ${direction === "sent" ? ">" : "<"} ${short(payload, payloadCharsMax)}`,
      ),
    ];
  });
}
