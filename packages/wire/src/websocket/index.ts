export { socketFailure } from "./dial-failure.ts";
export { webSocketHandshake } from "./handshake.ts";
export type { ServerSocket, SocketHandlers } from "./server-socket.ts";
