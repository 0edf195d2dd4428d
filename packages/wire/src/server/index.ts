export type { AnyReply } from "./connection.ts";
export { IncomingRequest } from "./incoming-request.ts";
export { Listener, type ListenerOptions } from "./listener.ts";
export { connectionsByOpenFiles } from "./open-files.ts";
export { RequestHead } from "./request-head.ts";
export { SocketReply } from "./upgrade.ts";
