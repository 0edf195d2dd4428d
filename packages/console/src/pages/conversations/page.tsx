import type { PageProps } from "../index.ts";
import { Conversation } from "./conversation.tsx";
import { ConversationList } from "./list.tsx";
import { NewConversation } from "./new.tsx";

/** The address of a conversation that is not stored before its first message. */
const NEW = "new";

export function Page({ params }: PageProps) {
  const isStored = params.id !== undefined && params.id !== NEW;
  return (
    <div className="chat">
      <ConversationList current={params.id} />
      {isStored ? (
        <Conversation key={params.id} id={params.id!} />
      ) : (
        <NewConversation isAlone={params.id === NEW} />
      )}
    </div>
  );
}
