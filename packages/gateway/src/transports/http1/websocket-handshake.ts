/** What RFC 6455 has the server add to the client's key. */
const ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION = "13";
/** 16 bytes in base64. */
const KEY = /^[A-Za-z0-9+/]{22}==$/;

export interface HandshakeRequest {
  method: string;
  /** By lower-case name; the values of a repeated header are joined by commas. */
  header(lowerCaseName: string): string | null;
  /** Subprotocols that may be selected; without it none ever is. */
  protocols?: readonly string[];
}

export interface HandshakeAccepted {
  accepted: true;
  /** The whole 101 response, one byte a character. */
  head: string;
  protocol: string | null;
}

export interface HandshakeRefused {
  accepted: false;
  status: 400 | 426;
  headers: Readonly<Record<string, string>>;
  text: string;
}

/** Null: the request does not ask for a WebSocket at all. */
export function webSocketHandshake(request: HandshakeRequest): HandshakeAccepted | HandshakeRefused | null {
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
  const protocol = selectProtocol(request);
  return { accepted: true, head: switchingHead(key, protocol), protocol };
}

function switchingHead(key: string, protocol: string | null): string {
  const accept = new Bun.CryptoHasher("sha1").update(key + ACCEPT_GUID).digest("base64");
  const selected = protocol === null ? "" : `Sec-WebSocket-Protocol: ${protocol}\r\n`;
  return `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${selected}\r\n`;
}

/** The client lists its wishes best first; subprotocol names are case-sensitive. */
function selectProtocol({ header, protocols = [] }: HandshakeRequest): string | null {
  if (protocols.length === 0) return null;
  const offered = tokensOf(header("sec-websocket-protocol"));
  return offered.find((name) => protocols.includes(name)) ?? null;
}

const namesToken = (value: string | null, token: string): boolean =>
  tokensOf(value).some((each) => each.toLowerCase() === token);

const tokensOf = (value: string | null): string[] =>
  value === null ? [] : value.split(",").map((token) => token.trim());

const badRequest = (problem: string): HandshakeRefused => ({
  accepted: false,
  status: 400,
  headers: {},
  text: `${problem}\n`,
});
