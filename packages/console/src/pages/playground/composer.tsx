import { type ClipboardEvent, type FormEvent, type KeyboardEvent, useRef, useState } from "react";
import type { Picture } from "../../lib/chat.ts";
import { toast } from "../../lib/toast.ts";
import { Button } from "../../ui/controls.tsx";

const PICTURES_MAX = 4;
/** The management plane takes calls up to 1 MiB, and base64 adds a third. */
const PICTURES_BYTES_MAX = 700 * 1024;

function readAsDataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export function Composer({
  busy,
  disabled,
  onSend,
  onStop,
}: {
  busy: boolean;
  disabled: boolean;
  onSend(text: string, pictures: readonly Picture[]): void;
  onStop(): void;
}) {
  const [text, setText] = useState("");
  const [pictures, setPictures] = useState<readonly Picture[]>([]);
  const picker = useRef<HTMLInputElement>(null);

  const add = async (files: readonly File[]) => {
    const images = files.filter(({ type }) => type.startsWith("image/")).slice(0, PICTURES_MAX);
    const made = await Promise.all(
      images.map(async (file) => ({ name: file.name, dataUrl: await readAsDataUrl(file) })),
    );
    setPictures((now) => {
      const next = [...now, ...made].slice(0, PICTURES_MAX);
      const bytes = next.reduce((sum, { dataUrl }) => sum + dataUrl.length, 0);
      if (bytes <= PICTURES_BYTES_MAX) return next;
      toast("These images are too large together; the limit is 700 KB.", "bad");
      return now;
    });
  };
  const paste = (event: ClipboardEvent) => {
    const files = [...event.clipboardData.files];
    if (files.length === 0) return;
    event.preventDefault();
    void add(files);
  };
  const send = (event?: FormEvent) => {
    event?.preventDefault();
    if (busy || disabled || text.trim() === "") return;
    onSend(text.trim(), pictures);
    setText("");
    setPictures([]);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form className="composer" onSubmit={send}>
      {pictures.length > 0 && (
        <ul className="row wrap">
          {pictures.map(({ dataUrl, name }) => (
            <li key={dataUrl} className="picture">
              <img src={dataUrl} alt={name} />
              <Button
                small
                icon="close"
                aria-label={`Remove ${name}`}
                onClick={() => setPictures(pictures.filter((picture) => picture.dataUrl !== dataUrl))}
              />
            </li>
          ))}
        </ul>
      )}
      <textarea
        aria-label="Your message"
        placeholder="Your message; images can be pasted"
        rows={2}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={key}
        onPaste={paste}
      />
      <div className="row between">
        <div className="row">
          <Button look="quiet" small icon="image" onClick={() => picker.current?.click()}>
            Image
          </Button>
          <input
            ref={picker}
            type="file"
            accept="image/*"
            multiple
            hidden
            aria-label="Images"
            onChange={(event) => void add([...(event.target.files ?? [])])}
          />
          <span className="muted small wide-only">Enter sends, Shift Enter breaks the line</span>
        </div>
        {busy ? (
          // A button of its own: made into the other one within its click, it would send what is being typed.
          <Button key="stop" icon="stop" onClick={onStop}>
            Stop
          </Button>
        ) : (
          <Button
            key="send"
            type="submit"
            look="primary"
            icon="send"
            disabled={disabled || text.trim() === ""}
          >
            Send
          </Button>
        )}
      </div>
    </form>
  );
}
