import type { Conversations } from "./service.ts";

export * as methods from "./methods.ts";
export { ConversationId } from "./schemas.ts";
export { Conversations, type StoredMessage } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    conversations: Conversations;
  }
}
