import { type ComponentType, lazy, Suspense } from "react";
import { Button, useCopy } from "./controls.tsx";

interface CodeProps {
  text: string;
  label: string;
  /** Its colours; named above the code when `titled`. */
  language?: string;
  titled?: boolean;
}

/** Loaded with the first code that names its language. Without it the code is readable all the same. */
const Colored = lazy<ComponentType<{ text: string; language: string }>>(() =>
  import("./colored.tsx").catch(() => ({ default: ({ text }) => text })),
);

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
        {language ? (
          <Suspense fallback={text}>
            <Colored text={text} language={language} />
          </Suspense>
        ) : (
          text
        )}
      </pre>
      {!titled && button}
    </figure>
  );
}
