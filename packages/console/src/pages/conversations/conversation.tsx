import { type Result, RPC_CODE, RpcError } from "@model-gateway/client";
import { useRef, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { isRunning, type Picture } from "../../lib/chat.ts";
import {
  type ConversationTurn,
  forgetTurn,
  goOnWithTurn,
  sendTurn,
  stopTurn,
  turns,
} from "../../lib/conversation-turns.ts";
import { useStickToEnd } from "../../lib/live.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Link, navigate } from "../../lib/router.ts";
import { useStore } from "../../lib/store.ts";
import { AnswerView } from "../../ui/chat/answer.tsx";
import { Composer } from "../../ui/chat/composer.tsx";
import { Spoken } from "../../ui/chat/spoken.tsx";
import { UserWords } from "../../ui/chat/user-words.tsx";
import { Button, LinkButton } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { Icon } from "../../ui/icons.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { Skeleton } from "../../ui/skeleton.tsx";
import { Empty, FormError, Loaded } from "../../ui/states.tsx";
import { MessageView, picturesOf } from "./message.tsx";
import { ModelChoice, useChatModel } from "./model.tsx";
import { Title } from "./title.tsx";

export type Message = Result<"conversations.get">["messages"][number];

/** The turn's answer is among the stored messages, and they are the ones to show. */
const isStored = ({ text, answer }: ConversationTurn, messages: readonly Message[]) =>
  answer.state === "done" &&
  messages.at(-1)?.role === "assistant" &&
  messages.findLast(({ role }) => role === "user")?.content === text;

/** The turn's message, if it is stored: a turn that was refused at once is not, and one that just ended may not be shown yet. */
async function storedAs(id: string, text: string): Promise<Message | undefined> {
  const { messages } = await api("conversations.get", { conversation_id: id });
  const last = messages.findLast(({ role }) => role === "user");
  return last?.content === text ? last : undefined;
}

export function Conversation({ id }: { id: string }) {
  const query = useQuery(`conversation ${id}`, () => api("conversations.get", { conversation_id: id }));
  const chosen = useChatModel();
  const turn = useStore(turns)[id];
  const scroll = useRef<HTMLDivElement>(null);
  useStickToEnd(scroll, turn ?? query.data);
  const messages = query.data?.messages ?? [];
  const busy = turn !== undefined && isRunning(turn.answer);
  const unstored = turn && !isStored(turn, messages) ? turn : undefined;

  /** Sends; when a message is edited, it and everything after it is removed first. */
  const send = useAction(async (text: string, pictures: readonly Picture[], from?: Message | "again") => {
    const first = from === "again" ? await storedAs(id, text) : from;
    if (first) {
      await api("conversations.rewind", { conversation_id: id, message_id: first.id });
      await query.reload();
    }
    void sendTurn({ id, model: chosen.model, text, pictures });
  });
  const again = () => {
    const last = messages.findLast(({ role }) => role === "user");
    const text = unstored?.text ?? last?.content;
    if (text !== undefined)
      void send.run(text, unstored?.pictures ?? (last ? picturesOf(last) : []), "again");
  };

  if (!query.data && query.error instanceof RpcError && query.error.code !== RPC_CODE.internal)
    return (
      <Empty
        icon="conversations"
        title="Conversation not found"
        action={<LinkButton href="/conversations">All conversations</LinkButton>}
      >
        It may have been deleted, or it belongs to someone else.
      </Empty>
    );
  return (
    <section className="chat-pane" aria-label="Conversation">
      <header className="chat-head">
        <Link
          href="/conversations"
          className="button quiet icon-only small back"
          aria-label="All conversations"
        >
          <Icon name="back" />
        </Link>
        {query.data ? <Title id={id} title={query.data.title} /> : <span className="grow" />}
        <ModelChoice {...chosen} />
        <Delete id={id} />
      </header>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <section className="chat-scroll" ref={scroll} tabIndex={0} aria-label="Messages">
        <div className="chat-messages">
          <Loaded query={query} outline={<Skeleton lines={8} />}>
            {() => (
              <>
                {messages.map((message, i) => (
                  <MessageView
                    key={message.id}
                    message={message}
                    answered={turn && !unstored && i === messages.length - 1 ? turn.answer : undefined}
                    onAgain={!unstored && i === messages.length - 1 ? again : undefined}
                    onEdit={busy ? undefined : (text) => void send.run(text, picturesOf(message), message)}
                  />
                ))}
                {unstored && (
                  <RunningTurn
                    turn={unstored}
                    messages={messages}
                    onRetry={busy ? undefined : again}
                    onGoOn={() => goOnWithTurn(id)}
                  />
                )}
                {!turn && messages.at(-1)?.role === "user" && (
                  <div className="row muted">
                    No answer was kept.
                    <Button small icon="refresh" busy={send.busy} disabled={!chosen.model} onClick={again}>
                      Answer again
                    </Button>
                  </div>
                )}
              </>
            )}
          </Loaded>
          {chosen.isNone && <NoModels />}
          <FormError error={send.error} />
        </div>
      </section>
      <Spoken answer={turn?.answer} label="Answer" />
      <Composer
        draftKey={id}
        busy={busy}
        disabled={!chosen.model || send.busy}
        onSend={(text, pictures) => void send.run(text, pictures)}
        onStop={() => stopTurn(id)}
      />
    </section>
  );
}

/** What is being said now; the words that were sent stand among the messages once they are stored. */
function RunningTurn({
  turn,
  messages,
  ...actions
}: {
  turn: ConversationTurn;
  messages: readonly Message[];
  onRetry?: () => void;
  onGoOn(): void;
}) {
  const last = messages.at(-1);
  const isAmongThem = last?.role === "user" && last.content === turn.text;
  return (
    <>
      {!isAmongThem && <UserWords text={turn.text} pictures={turn.pictures} />}
      <AnswerView answer={turn.answer} {...actions} />
    </>
  );
}

function Delete({ id }: { id: string }) {
  const [deleting, setDeleting] = useState(false);
  return (
    <>
      <Button
        look="danger"
        small
        icon="trash"
        aria-label="Delete the conversation"
        title="Delete"
        onClick={() => setDeleting(true)}
      />
      {deleting && (
        <Confirm
          title="Delete this conversation?"
          consequence="All its messages are deleted. This cannot be undone."
          confirm="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await api("conversations.delete", { conversation_id: id });
            forgetTurn(id);
            invalidate("conversations");
            navigate("/conversations");
          }}
        />
      )}
    </>
  );
}
