import { splitAttachments } from "../../lib/attachments.ts";
import type { Picture } from "../../lib/chat.ts";
import { Code } from "../code.tsx";
import { Icon } from "../icons.tsx";

/** What the person said, as typed; attached files are folded. */
export function UserWords({ text, pictures = [] }: { text: string; pictures?: readonly Picture[] }) {
  const { text: typed, files } = splitAttachments(text);
  return (
    <div className="user-words">
      {pictures.map(({ dataUrl, name }) => (
        <img key={dataUrl} src={dataUrl} alt={name} />
      ))}
      <p>{typed}</p>
      {files.map((file, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: two files may have the same name
        <details key={i} className="folded">
          <summary>
            <Icon name="docs" /> {file.name}
          </summary>
          <Code label={file.name} text={file.text} language={file.name.split(".").at(-1)} />
        </details>
      ))}
    </div>
  );
}
