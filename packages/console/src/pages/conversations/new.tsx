import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { splitAttachments } from "../../lib/attachments.ts";
import type { Picture } from "../../lib/chat.ts";
import { sendTurn } from "../../lib/conversation-turns.ts";
import { invalidate } from "../../lib/query.ts";
import { Link, navigate } from "../../lib/router.ts";
import { Composer } from "../../ui/chat/composer.tsx";
import { Icon } from "../../ui/icons.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { FormError } from "../../ui/states.tsx";
import { ModelChoice, useChatModel } from "./model.tsx";

const TITLE_LENGTH_MAX = 60;

/** The first words, so that it can be recognised before anyone names it. */
function titleOf(text: string): string {
  const words = splitAttachments(text).text.replaceAll(/\s+/g, " ").trim();
  if (words.length <= TITLE_LENGTH_MAX) return words || "Files";
  return `${words.slice(0, words.lastIndexOf(" ", TITLE_LENGTH_MAX) || TITLE_LENGTH_MAX)}…`;
}

/** `isAlone`: on a phone it is shown instead of the list. */
export function NewConversation({ isAlone }: { isAlone: boolean }) {
  const chosen = useChatModel();
  const start = useAction(async (text: string, pictures: readonly Picture[]) => {
    const { id } = await api("conversations.create", { title: titleOf(text) });
    invalidate("conversations");
    void sendTurn({ id, model: chosen.model, text, pictures });
    navigate(`/conversations/${id}`);
  });
  const Heading = isAlone ? "h1" : "h2";
  return (
    <section className={isAlone ? "chat-pane" : "chat-pane not-alone"} aria-label="New conversation">
      <header className="chat-head">
        <Link
          href="/conversations"
          className="button quiet icon-only small back"
          aria-label="All conversations"
        >
          <Icon name="back" />
        </Link>
        <Heading className="chat-heading grow">New conversation</Heading>
        <ModelChoice {...chosen} />
      </header>
      <div className="chat-scroll">
        <div className="chat-welcome">
          <Icon name="conversations" />
          <p className="muted">
            Ask something. The conversation is kept by the service, so that your programs can go on with it by
            its id.
          </p>
          {chosen.isNone && <NoModels />}
          <FormError error={start.error} />
        </div>
      </div>
      <Composer
        draftKey="new conversation"
        busy={start.busy}
        disabled={!chosen.model}
        onSend={start.run}
        onStop={() => {}}
      />
    </section>
  );
}
