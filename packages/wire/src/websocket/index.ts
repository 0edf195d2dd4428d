export { socketFailure } from "./dial-failure.ts";
export type { ServerSocket, SocketHandlers } from "./server-socket.ts";
