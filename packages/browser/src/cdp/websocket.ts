/** The link to a Chrome that is already running and listens on a debugging port. It is left running at the end. */
import type { CdpMessage, CdpRequest, EngineTransport } from "../engines/contract.ts";
import { ToolError } from "../errors.ts";

const answerMsMax = 10_000;

async function socketAddress(url: string): Promise<string> {
  if (/^wss?:/.test(url)) return url;
  const about = await fetch(new URL("/json/version", url), { signal: AbortSignal.timeout(answerMsMax) });
  const { webSocketDebuggerUrl } = (await about.json()) as { webSocketDebuggerUrl?: string };
  if (!webSocketDebuggerUrl) throw new Error("it names no debugging socket");
  return webSocketDebuggerUrl;
}

export async function attachTo(url: string): Promise<EngineTransport> {
  try {
    const socket = new WebSocket(await socketAddress(url));
    const transport: EngineTransport = {
      send: (message: CdpRequest) => {
        if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
      },
      onMessage: () => {},
      onClose: () => {},
      close: async () => socket.close(),
    };
    socket.onmessage = ({ data }) => transport.onMessage(JSON.parse(String(data)) as CdpMessage);
    await new Promise<void>((resolve, reject) => {
      socket.onopen = () => resolve();
      socket.onclose = ({ reason }) => reject(new Error(reason || "the connection was refused"));
      AbortSignal.timeout(answerMsMax).onabort = () => reject(new Error("it did not answer"));
    });
    socket.onclose = () => transport.onClose("the browser closed the connection");
    return transport;
  } catch (error) {
    throw new ToolError(
      "browser_unavailable",
      `No browser could be attached to at ${url} (${(error as Error).message}). Start Chrome with --remote-debugging-port=9222 and a --user-data-dir.`,
    );
  }
}
