import { Button, useCopy } from "../controls.tsx";

export function CopyMessage({ text }: { text: string }) {
  const [copied, copy] = useCopy();
  return (
    <Button
      look="quiet"
      small
      icon={copied ? "check" : "copy"}
      aria-label="Copy the message"
      title="Copy"
      onClick={() => copy(text)}
    />
  );
}

export function Regenerate({ onClick }: { onClick(): void }) {
  return (
    <Button
      look="quiet"
      small
      icon="refresh"
      aria-label="Answer again"
      title="Answer again"
      onClick={onClick}
    />
  );
}
