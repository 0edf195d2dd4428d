import {
  type ClipboardEvent,
  type DragEvent,
  type FormEvent,
  type KeyboardEvent,
  useRef,
  useState,
} from "react";
import { type Attached, NOTHING_ATTACHED, withAttachments, withFiles } from "../../lib/attachments.ts";
import type { Picture } from "../../lib/chat.ts";
import { draftOf, keepDraft } from "../../lib/drafts.ts";
import { toastError } from "../../lib/toast.ts";
import { Button } from "../controls.tsx";
import { Icon } from "../icons.tsx";

interface ComposerProps {
  /** Under this name the draft outlives the page. */
  draftKey: string;
  busy: boolean;
  disabled: boolean;
  /** What resolves to false was not sent: what was written is put back. */
  onSend(text: string, pictures: readonly Picture[]): unknown;
  onStop(): void;
}

/** Where a message is written: images and text files are pasted, dropped or chosen. */
export function Composer({ draftKey, busy, disabled, onSend, onStop }: ComposerProps) {
  const [text, setText] = useState(() => draftOf(draftKey));
  const [attached, setAttached] = useState<Attached>(NOTHING_ATTACHED);
  const picker = useRef<HTMLInputElement>(null);
  const canSend = !busy && !disabled && (text.trim() !== "" || attached.files.length > 0);

  const write = (next: string) => {
    setText(next);
    keepDraft(draftKey, next);
  };
  const add = (files: readonly File[]) => {
    withFiles(attached, files).then(setAttached, toastError);
  };
  const take = (event: ClipboardEvent | DragEvent, files: FileList | undefined) => {
    if (!files?.length) return;
    event.preventDefault();
    add([...files]);
  };
  const send = async (event?: FormEvent) => {
    event?.preventDefault();
    if (!canSend) return;
    const sent = onSend(withAttachments(text.trim(), attached.files), attached.pictures);
    write("");
    setAttached(NOTHING_ATTACHED);
    if ((await sent) !== false || draftOf(draftKey) !== "") return;
    write(text);
    setAttached(attached);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send();
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => void send(event)}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => take(event, event.dataTransfer.files)}
    >
      <AttachedList attached={attached} onChange={setAttached} />
      <textarea
        aria-label="Your message"
        placeholder="Your message; images and text files can be pasted or dropped"
        rows={2}
        value={text}
        onChange={(event) => write(event.target.value)}
        onKeyDown={key}
        onPaste={(event) => take(event, event.clipboardData.files)}
      />
      <div className="row between">
        <div className="row">
          <Button look="quiet" small icon="plus" onClick={() => picker.current?.click()}>
            Attach
          </Button>
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            aria-label="Files"
            onChange={(event) => {
              add([...(event.target.files ?? [])]);
              // Or the same file could not be chosen a second time.
              event.target.value = "";
            }}
          />
          <span className="muted small wide-only">Enter sends, Shift Enter breaks the line</span>
        </div>
        {busy ? (
          // A button of its own: made into the other one within its click, it would send what is being typed.
          <Button key="stop" icon="stop" onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button key="send" type="submit" look="primary" icon="send" disabled={!canSend}>
            Send
          </Button>
        )}
      </div>
    </form>
  );
}

function AttachedList({ attached, onChange }: { attached: Attached; onChange(attached: Attached): void }) {
  const { pictures, files } = attached;
  if (pictures.length + files.length === 0) return null;
  return (
    <ul className="row wrap" aria-label="Attached">
      {pictures.map((picture) => (
        <li key={picture.dataUrl} className="picture">
          <img src={picture.dataUrl} alt={picture.name} />
          <Button
            small
            icon="close"
            aria-label={`Remove ${picture.name}`}
            onClick={() => onChange({ ...attached, pictures: pictures.filter((one) => one !== picture) })}
          />
        </li>
      ))}
      {files.map((file, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: two files may have the same name
        <li key={i} className="tag">
          <Icon name="docs" /> {file.name}
          <Button
            look="quiet"
            small
            icon="close"
            aria-label={`Remove ${file.name}`}
            onClick={() => onChange({ ...attached, files: files.filter((one) => one !== file) })}
          />
        </li>
      ))}
    </ul>
  );
}
