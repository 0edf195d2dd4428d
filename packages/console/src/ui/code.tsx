import { useMemo } from "react";
import { highlight } from "../lib/highlight.ts";
import { Button, useCopy } from "./controls.tsx";

interface CodeProps {
  text: string;
  label: string;
  /** Its colours; named above the code when `titled`. */
  language?: string;
  titled?: boolean;
}

/** A piece of code to read and to copy. */
export function Code({ text, label, language = "", titled = false }: CodeProps) {
  const [copied, copy] = useCopy();
  const button = (
    <Button
      small
      look={titled ? "quiet" : undefined}
      icon={copied ? "check" : "copy"}
      onClick={() => copy(text)}
    >
      {copied ? "Copied" : "Copy"}
    </Button>
  );
  return (
    <figure className={titled ? "code titled" : "code"} aria-label={label}>
      {titled && (
        <figcaption className="code-head">
          {language || "text"}
          {button}
        </figcaption>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard */}
      <pre tabIndex={0}>
        <Colored text={text} language={language} />
      </pre>
      {!titled && button}
    </figure>
  );
}

function Colored({ text, language }: { text: string; language: string }) {
  const tokens = useMemo(() => highlight(text, language), [text, language]);
  return tokens.map((token, i) =>
    token.kind === "plain" ? (
      token.text
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
      <span key={i} className={`code-${token.kind}`}>
        {token.text}
      </span>
    ),
  );
}
