import type { ToolCall } from "@model-gateway/client";
import { type FormEvent, useState } from "react";
import type { Answer, Picture } from "../../lib/chat.ts";
import { Reasoning, Stats } from "../../ui/chat/answer.tsx";
import { CopyMessage, Regenerate } from "../../ui/chat/message-actions.tsx";
import { ToolCallView, ToolResultView } from "../../ui/chat/tool-call.tsx";
import { UserWords } from "../../ui/chat/user-words.tsx";
import { Button } from "../../ui/controls.tsx";
import { Markdown } from "../../ui/markdown.tsx";
import type { Message } from "./conversation.tsx";

/** Images sent by URL are not shown: the console never contacts other hosts. */
export function picturesOf({ images }: Message): Picture[] {
  const urls = (images ?? []).map((image) =>
    typeof image === "string" ? image : (image as { url?: unknown } | null)?.url,
  );
  return urls
    .filter((url): url is string => typeof url === "string" && url.startsWith("data:image/"))
    .map((dataUrl, i) => ({ dataUrl, name: `Image ${i + 1}` }));
}

export function MessageView({
  message,
  answered,
  onAgain,
  onEdit,
}: {
  message: Message;
  /** The turn that it came from, when that was in this tab. */
  answered?: Answer;
  onAgain?: () => void;
  onEdit?: (text: string) => void;
}) {
  if (message.role === "user") return <UserMessage message={message} onEdit={onEdit} />;
  if (message.role === "tool") return <ToolResultView text={message.content} />;
  return (
    <article className="answer" aria-label="Answer">
      <Reasoning text={answered?.reasoning ?? ""} />
      <Markdown text={message.content} />
      {(message.tool_calls as ToolCall[] | undefined)?.map((call, i) => (
        <ToolCallView key={call.id ?? i} call={call} />
      ))}
      <div className="row wrap">
        <div className="row message-actions">
          <CopyMessage text={message.content} />
          {onAgain && <Regenerate onClick={onAgain} />}
        </div>
        {answered && <Stats answer={answered} />}
      </div>
    </article>
  );
}

function UserMessage({ message, onEdit }: { message: Message; onEdit?: (text: string) => void }) {
  const [draft, setDraft] = useState<string | null>(null);
  if (draft !== null && onEdit) {
    const submit = (event: FormEvent) => {
      event.preventDefault();
      if (draft.trim() === "") return;
      onEdit(draft.trim());
      setDraft(null);
    };
    return (
      <form className="stack tight edit-message" onSubmit={submit}>
        <textarea
          className="textarea"
          aria-label="Edit the message"
          // biome-ignore lint/a11y/noAutofocus: the person has just asked to edit it
          autoFocus
          value={draft}
          onChange={(event) => setDraft(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") setDraft(null);
            if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) submit(event);
          }}
        />
        <div className="row between wrap">
          <span className="muted small">What was said after it is removed.</span>
          <span className="row">
            <Button small onClick={() => setDraft(null)}>
              Cancel
            </Button>
            <Button small look="primary" type="submit" icon="send">
              Send
            </Button>
          </span>
        </div>
      </form>
    );
  }
  return (
    <article className="said" aria-label="You">
      <UserWords text={message.content} pictures={picturesOf(message)} />
      <div className="row message-actions">
        <CopyMessage text={message.content} />
        {onEdit && (
          <Button
            look="quiet"
            small
            icon="edit"
            aria-label="Edit and send again"
            title="Edit and send again"
            onClick={() => setDraft(message.content)}
          />
        )}
      </div>
    </article>
  );
}
