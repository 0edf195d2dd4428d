import { z } from "zod";

/** Any text, because an unknown conversation is not found rather than invalid; in the case of the stored ids. */
export const ConversationId = z.string().max(64).toLowerCase();
