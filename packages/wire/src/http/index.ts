export { ClientAddress } from "./client-address.ts";
export { ipFamily } from "./ip-family.ts";
export { isNetwork, Networks } from "./networks.ts";
export {
  EVENT_STREAM_HEADERS,
  EVENT_STREAM_TYPE,
  isEventStream,
  isJsonType,
  JSON_TYPE,
  jsonReply,
  mediaTypeOf,
  Reply,
  type ReplyHead,
  type ReplySource,
  type ReplyWriter,
  StreamedReply,
} from "./reply.ts";
export { BadRequest, bearerOf, type HttpRequest, textOfHeader } from "./request.ts";
export { Router } from "./router.ts";
export { replyOf, WebSource } from "./web-reply.ts";
