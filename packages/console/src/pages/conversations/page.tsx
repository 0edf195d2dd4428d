import { useEffect, useRef, useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { type Answer, NEW_ANSWER, type Picture, runChat, userMessage } from "../../lib/chat.ts";
import { plural } from "../../lib/format.ts";
import { useFollowEnd } from "../../lib/live.ts";
import { useCallableModels, withChosen } from "../../lib/models.ts";
import { invalidate, useQuery } from "../../lib/query.ts";
import { Link, navigate, useSearch } from "../../lib/router.ts";
import { Button, SmallSelect } from "../../ui/controls.tsx";
import { Confirm } from "../../ui/dialogs.tsx";
import { Markdown } from "../../ui/markdown.tsx";
import { NoModels } from "../../ui/no-models.tsx";
import { PageHead } from "../../ui/page.tsx";
import { Empty, FormError, Loaded } from "../../ui/states.tsx";
import type { PageProps } from "../index.ts";
import { AnswerView } from "../playground/answer.tsx";
import { Composer } from "../playground/composer.tsx";
import { UserWords } from "../playground/user-words.tsx";
import { Title } from "./title.tsx";

export function Page({ params }: PageProps) {
  const list = useQuery("conversations", () => api("conversations.list"));
  const create = useAction(async () => {
    const made = await api("conversations.create");
    invalidate("conversations");
    navigate(`/conversations/${made.id}`);
  });
  const start = (
    <Button look="primary" icon="plus" busy={create.busy} onClick={() => void create.run()}>
      New conversation
    </Button>
  );
  return (
    <>
      <PageHead title="Conversations" actions={start}>
        Kept by the service, so that any program of yours can go on with them by their id.
      </PageHead>
      <FormError error={create.error} />
      <Loaded query={list}>
        {(conversations) =>
          conversations.length === 0 ? (
            <Empty icon="conversations" title="No conversations yet" action={start}>
              A conversation keeps its messages here and stays with the backend that first answered it.
            </Empty>
          ) : (
            <div className="split">
              <nav aria-label="Conversations" className={params.id ? "list with-detail" : "list"}>
                {conversations.map(({ id, title, updated_ago, message_count }) => (
                  <Link
                    key={id}
                    href={`/conversations/${id}`}
                    aria-current={id === params.id ? "page" : undefined}
                  >
                    <strong className="ellipsis">{title}</strong>
                    <span className="muted small">
                      {plural(message_count, "message")}, {updated_ago}
                    </span>
                  </Link>
                ))}
              </nav>
              {params.id ? (
                <Conversation key={params.id} id={params.id} />
              ) : (
                <p className="muted">Choose a conversation to read it and go on.</p>
              )}
            </div>
          )
        }
      </Loaded>
    </>
  );
}

function Conversation({ id }: { id: string }) {
  const [search, setSearch] = useSearch();
  const query = useQuery(`conversation ${id}`, () => api("conversations.get", { conversation_id: id }));
  const models = useCallableModels();
  const [sent, setSent] = useState<{ text: string; pictures: readonly Picture[] } | null>(null);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [deleting, setDeleting] = useState(false);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  useFollowEnd(answer);
  const model = search.get("model") ?? models.data?.[0] ?? "";
  const busy = answer?.state === "waiting" || answer?.state === "streaming";

  const send = async (text: string, pictures: readonly Picture[]) => {
    const aborter = new AbortController();
    running.current = aborter;
    setSent({ text, pictures });
    setAnswer(NEW_ANSWER);
    const messages = [userMessage(text, pictures)];
    const ended = await runChat({
      request: { model, messages, conversation_id: id },
      signal: aborter.signal,
      onChange: setAnswer,
    });
    await query.reload();
    invalidate("conversations");
    if (ended.state !== "done") return;
    setSent(null);
    setAnswer(null);
  };

  return (
    <section className="stack" aria-label="Messages">
      {query.data && (
        <>
          <Title id={id} title={query.data.title} />
          <div className="row between">
            <SmallSelect
              label="Model"
              value={model}
              onChange={(value) => setSearch({ model: value })}
              choices={withChosen(models.data ?? [], model).map((name) => ({ value: name, label: name }))}
            />
            <Button look="danger" small icon="trash" onClick={() => setDeleting(true)}>
              Delete
            </Button>
          </div>
        </>
      )}
      <Loaded query={query}>
        {({ messages }) => (
          <>
            {messages.length === 0 && sent === null && <p className="muted">Nothing has been said yet.</p>}
            {messages.map((message) =>
              message.role === "user" ? (
                <UserWords key={message.id} text={message.content} />
              ) : (
                <Markdown key={message.id} text={message.content} />
              ),
            )}
            {/* The service keeps a turn that failed or was stopped; then it is among the messages. */}
            {sent !== null && messages.at(-1)?.content !== sent.text && <UserWords {...sent} />}
            {answer && (
              <AnswerView
                answer={answer}
                onRetry={sent === null ? undefined : () => void send(sent.text, sent.pictures)}
              />
            )}
          </>
        )}
      </Loaded>
      {models.data?.length === 0 && <NoModels />}
      {query.data && (
        <Composer
          busy={busy}
          disabled={!model}
          onSend={(text, pictures) => void send(text, pictures)}
          onStop={() => running.current?.abort()}
        />
      )}
      {deleting && (
        <Confirm
          title="Delete this conversation?"
          consequence="All its messages are deleted. This cannot be undone."
          confirm="Delete"
          onClose={() => setDeleting(false)}
          onConfirm={async () => {
            await api("conversations.delete", { conversation_id: id });
            invalidate("conversations");
            navigate("/conversations");
          }}
        />
      )}
    </section>
  );
}
