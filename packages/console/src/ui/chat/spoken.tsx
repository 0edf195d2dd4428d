import { type Answer, isRunning } from "../../lib/chat.ts";

/** Sentences and lines that are whole; what is still being written waits. */
function wholeSentences(text: string, isOver: boolean): string[] {
  const readable = text.replace(/```[\s\S]*?(```|$)/g, "\n(code)\n").replace(/[*`#|]/g, "");
  const sentences = readable.split(/(?<=[.!?:])\s+|\n+/).filter((sentence) => sentence.trim() !== "");
  return isOver || /[.!?:\n]\s*$/.test(readable) ? sentences : sentences.slice(0, -1);
}

/** The answer for those who listen: every sentence is announced once, when it is whole. */
export function Spoken({ answer, label }: { answer: Answer | undefined; label: string }) {
  const sentences = answer ? wholeSentences(answer.text, !isRunning(answer)) : [];
  return (
    <div className="visually-hidden" role="log" aria-live="polite" aria-label={label}>
      {sentences.map((sentence, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: sentences are only ever added
        <p key={i}>{sentence}</p>
      ))}
    </div>
  );
}
