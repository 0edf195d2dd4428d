/** The GUID that RFC 6455 appends to the client's key. */
const ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION = "13";
/** 16 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/;

export interface HandshakeRequest {
  method: string;
  /** By lower-case name; repeated headers are joined with commas. */
  header(lowerCaseName: string): string | null;
}

export interface HandshakeAccepted {
  accepted: true;
  /** The whole 101 response, one byte per character. */
  head: string;
}

export interface HandshakeRefused {
  accepted: false;
  status: 400 | 426;
  headers: Readonly<Record<string, string>>;
  text: string;
}

/** Null when the request does not ask for a WebSocket at all. `protocol` is selected where the client offers it. */
export function webSocketHandshake(
  request: HandshakeRequest,
  protocol?: string,
): HandshakeAccepted | HandshakeRefused | null {
  if (!namesToken(request.header("upgrade"), "websocket")) return null;
  if (request.method !== "GET") return badRequest(`A WebSocket opens with GET, not ${request.method}`);
  if (!namesToken(request.header("connection"), "upgrade")) {
    return badRequest("The Connection header has to name Upgrade; a proxy on the way may have removed it");
  }
  if (request.header("sec-websocket-version")?.trim() !== VERSION) {
    return {
      accepted: false,
      status: 426,
      headers: { "sec-websocket-version": VERSION, upgrade: "websocket" },
      text: `Sec-WebSocket-Version has to be ${VERSION}\n`,
    };
  }
  const key = request.header("sec-websocket-key")?.trim() ?? "";
  if (!KEY.test(key)) return badRequest("Sec-WebSocket-Key has to be 16 bytes in base64");
  const isOffered = protocol && namesToken(request.header("sec-websocket-protocol"), protocol);
  return { accepted: true, head: switchingHead(key, isOffered ? protocol : null) };
}

function switchingHead(key: string, protocol: string | null): string {
  const accept = new Bun.CryptoHasher("sha1").update(key + ACCEPT_GUID).digest("base64");
  const selected = protocol === null ? "" : `Sec-WebSocket-Protocol: ${protocol}\r\n`;
  return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${selected}\r\n`;
}

const namesToken = (value: string | null, token: string): boolean =>
  value?.split(",").some((each) => each.trim().toLowerCase() === token) ?? false;

const badRequest = (problem: string): HandshakeRefused => ({
  accepted: false,
  status: 400,
  headers: {},
  text: `${problem}\n`,
});
