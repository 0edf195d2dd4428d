import { useMemo } from "react";
import { highlight } from "../lib/highlight.ts";

export default function Colored({ text, language }: { text: string; language: string }) {
  const tokens = useMemo(() => highlight(text, language), [text, language]);
  return tokens.map(({ kind, text: piece }, i) =>
    kind === null ? (
      piece
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
      <span key={i} className={`code-${kind}`}>
        {piece}
      </span>
    ),
  );
}
