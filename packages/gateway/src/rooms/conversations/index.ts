export * as methods from "./methods.ts";
export { ConversationId } from "./schemas.ts";
export { Conversations, type StoredMessage } from "./service.ts";
