import type { Token, Tokens } from "marked";
import { type ComponentType, createElement, Fragment, lazy, memo, type ReactNode, Suspense } from "react";
import { headingId, type MarkdownToken, parseMarkdown, plainText, sectionsOf } from "../lib/markdown.ts";
import { Link } from "../lib/router.ts";
import { Code } from "./code.tsx";

/** Turns a link of the text into an address of the console; null means: show the words only. */
type Resolve = (href: string) => string | null;

const external: Resolve = (href) => (/^https?:\/\//.test(href) ? href : null);

const Source = ({ tex }: { tex: string }) => <code>{tex}</code>;
/** Loaded with the first formula. */
const Formula = lazy<ComponentType<{ tex: string; block: boolean }>>(() =>
  import("./math.tsx").catch(() => ({ default: Source })),
);

function Anchor({ href, children }: { href: string; children: ReactNode }) {
  if (href.startsWith("/")) return <Link href={href}>{children}</Link>;
  return (
    <a href={href} target={href.startsWith("#") ? undefined : "_blank"} rel="noreferrer">
      {children}
    </a>
  );
}

const INSIDE = /^data:image\/(png|jpeg|gif|webp|avif);base64,/;

/** A picture of the documentation; one from elsewhere is a link, because no other host is ever asked. */
function Image({ token: { href, text }, resolve }: { token: Tokens.Image; resolve: Resolve }) {
  if (INSIDE.test(href)) return <img src={href} alt={text} />;
  const src = resolve(href);
  if (src === null) return text;
  if (src.startsWith("/")) return <img src={src} alt={text} />;
  return <Anchor href={src}>{text || src}</Anchor>;
}

function One({ token, resolve }: { token: MarkdownToken; resolve: Resolve }): ReactNode {
  const draw = (tokens: readonly Token[]) => <All tokens={tokens} resolve={resolve} />;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "html":
      // Nothing else comes here but remarks for those who write the text.
      return token.block ? null : <br />;
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "text":
      return token.tokens ? draw(token.tokens) : token.text;
    case "escape":
      return token.text;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "codespan":
      return <code>{token.text}</code>;
    case "math":
      return (
        <Suspense fallback={<Source tex={token.text} />}>
          <Formula tex={token.text} block={token.block} />
        </Suspense>
      );
    case "strong":
    case "em":
    case "del":
    case "blockquote":
      return createElement(token.type, null, draw(token.tokens));
    case "paragraph":
      return <p>{draw(token.tokens)}</p>;
    case "heading":
      return createElement(`h${token.depth}`, { id: headingId(token.tokens) }, draw(token.tokens));
    case "link": {
      const href = resolve(token.href);
      return href === null ? draw(token.tokens) : <Anchor href={href}>{draw(token.tokens)}</Anchor>;
    }
    case "image":
      return <Image token={token} resolve={resolve} />;
    case "code": {
      const language = /^[\w+#.-]*/.exec(token.lang ?? "")![0];
      return (
        <Code
          text={token.text}
          label={language ? `${language} code` : "Code"}
          language={language}
          titled={language !== ""}
        />
      );
    }
    case "list":
      return createElement(
        token.ordered ? "ol" : "ul",
        token.ordered ? { start: token.start } : null,
        draw(token.items),
      );
    case "list_item":
      return <li>{draw(token.tokens)}</li>;
    case "table":
      return <MarkdownTable token={token} resolve={resolve} />;
  }
}

function MarkdownTable({ token, resolve }: { token: Tokens.Table; resolve: Resolve }) {
  const row = (cells: readonly Tokens.TableCell[]) => (
    <tr>
      {cells.map(({ header, tokens }, i) =>
        createElement(
          header && plainText(tokens).trim() !== "" ? "th" : "td",
          { key: i },
          <All tokens={tokens} resolve={resolve} />,
        ),
      )}
    </tr>
  );
  return (
    // A group and not a region: a page may have many, and landmarks must be told apart.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for forms
    <div role="group" className="table-wrap" tabIndex={0} aria-label="Table">
      <table className="table">
        <thead>{row(token.header)}</thead>
        <tbody>
          {token.rows.map((cells, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
            <Fragment key={i}>{row(cells)}</Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function All({ tokens, resolve }: { tokens: readonly Token[]; resolve: Resolve }) {
  // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
  return tokens.map((token, i) => <One key={i} token={token as MarkdownToken} resolve={resolve} />);
}

const Section = memo(function Section({ text, resolve }: { text: string; resolve: Resolve }) {
  return <All tokens={parseMarkdown(text) as Token[]} resolve={resolve} />;
});

export const Markdown = memo(function Markdown({
  text,
  resolve = external,
}: {
  text: string;
  resolve?: Resolve;
}) {
  return (
    <div className="prose">
      {sectionsOf(text).map((section, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
        <Section key={i} text={section} resolve={resolve} />
      ))}
    </div>
  );
});
