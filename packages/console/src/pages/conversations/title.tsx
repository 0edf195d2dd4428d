import { useState } from "react";
import { useAction } from "../../lib/action.ts";
import { api } from "../../lib/api.ts";
import { invalidate } from "../../lib/query.ts";
import { Button } from "../../ui/controls.tsx";
import { FormError } from "../../ui/states.tsx";

const TITLE_LENGTH_MAX = 200;

/** The conversation's title; edited in place, kept with Enter and left alone with Escape. */
export function Title({ id, title }: { id: string; title: string }) {
  const [draft, setDraft] = useState<string | null>(null);
  const save = useAction(async (text: string) => {
    if (text !== "" && text !== title) {
      await api("conversations.rename", { conversation_id: id, title: text });
      invalidate("conversation");
    }
    setDraft(null);
  });
  if (draft === null)
    return (
      <h1 className="row title chat-heading grow">
        <span className="ellipsis">{title}</span>
        <Button
          look="quiet"
          small
          icon="edit"
          aria-label="Rename this conversation"
          onClick={() => setDraft(title)}
        />
      </h1>
    );
  return (
    <form
      className="stack tight title grow"
      onSubmit={(event) => {
        event.preventDefault();
        void save.run(draft.trim());
      }}
    >
      <div className="row">
        <input
          className="input"
          aria-label="Title"
          // biome-ignore lint/a11y/noAutofocus: the person has just asked to rename it
          autoFocus
          maxLength={TITLE_LENGTH_MAX}
          value={draft}
          onChange={(event) => setDraft(event.target.value)}
          onFocus={(event) => event.target.select()}
          onKeyDown={(event) => {
            if (event.key === "Escape") setDraft(null);
          }}
        />
        <Button type="submit" look="primary" small busy={save.busy}>
          Save
        </Button>
        <Button small onClick={() => setDraft(null)}>
          Cancel
        </Button>
      </div>
      <FormError error={save.error} />
    </form>
  );
}
