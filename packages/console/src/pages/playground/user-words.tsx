import type { Picture } from "../../lib/chat.ts";

export function UserWords({ text, pictures = [] }: { text: string; pictures?: readonly Picture[] }) {
  return (
    <div className="user-words">
      {pictures.map(({ dataUrl, name }) => (
        <img key={dataUrl} src={dataUrl} alt={name} />
      ))}
      <p>{text}</p>
    </div>
  );
}
