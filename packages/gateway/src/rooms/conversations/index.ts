export * as methods from "./methods.ts";
export { ConversationId } from "./methods.ts";
export { Conversations, type StoredMessage } from "./service.ts";
