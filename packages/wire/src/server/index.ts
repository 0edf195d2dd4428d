export type { AnyReply } from "./connection.ts";
export type { IncomingRequest } from "./incoming-request.ts";
export { type Certificate, Listener, type ListenerOptions } from "./listener.ts";
export { connectionsByOpenFiles } from "./open-files.ts";
export { networkOf } from "./strangers.ts";
export { SocketReply } from "./upgrade.ts";
