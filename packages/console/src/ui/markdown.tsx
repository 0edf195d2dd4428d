import { createElement, Fragment, memo } from "react";
import { type Block, headingId, type Inline, parseMarkdown, plainText } from "../lib/markdown.ts";
import { Link } from "../lib/router.ts";
import { Code } from "./code.tsx";
import { Formula } from "./math.tsx";

/** Turns a link of the text into an address of the console; null means: show the words only. */
type Resolve = (href: string) => string | null;

const external: Resolve = (href) => (/^https?:\/\//.test(href) ? href : null);
function Inlines({ parts, resolve }: { parts: readonly Inline[]; resolve: Resolve }) {
  return parts.map((part, i) => {
    const key = `${i}${part.kind}`;
    if (part.kind === "text") return <Fragment key={key}>{part.text}</Fragment>;
    if (part.kind === "code") return <code key={key}>{part.text}</code>;
    if (part.kind === "math") return <Formula key={key} tex={part.text} />;
    if (part.kind === "image") return <Image key={key} part={part} resolve={resolve} />;
    const inside = <Inlines parts={part.children} resolve={resolve} />;
    if (part.kind !== "link") return createElement(part.kind, { key }, inside);
    const href = resolve(part.href);
    if (href === null) return <Fragment key={key}>{inside}</Fragment>;
    if (href.startsWith("/"))
      return (
        <Link key={key} href={href}>
          {inside}
        </Link>
      );
    return (
      <a key={key} href={href} target={href.startsWith("#") ? undefined : "_blank"} rel="noreferrer">
        {inside}
      </a>
    );
  });
}

/** Pictures that a model made travel inside its answer. */
const INSIDE = /^data:image\/(png|jpeg|gif|webp|avif);base64,/;

/** A picture of the documentation; one from elsewhere is a link, because no other host is ever asked. */
function Image({ part, resolve }: { part: Extract<Inline, { kind: "image" }>; resolve: Resolve }) {
  if (INSIDE.test(part.href)) return <img src={part.href} alt={part.text} />;
  const src = resolve(part.href);
  if (src === null) return part.text;
  if (src.startsWith("/")) return <img src={src} alt={part.text} />;
  return (
    <a href={src} target="_blank" rel="noreferrer">
      {part.text || src}
    </a>
  );
}

function OneBlock({ block, resolve }: { block: Block; resolve: Resolve }) {
  switch (block.kind) {
    case "heading":
      return createElement(
        `h${block.level}`,
        { id: headingId(block.children) },
        <Inlines parts={block.children} resolve={resolve} />,
      );
    case "paragraph":
      return (
        <p>
          <Inlines parts={block.children} resolve={resolve} />
        </p>
      );
    case "code":
      return (
        <Code
          text={block.text}
          label={block.language ? `${block.language} code` : "Code"}
          language={block.language}
          titled={block.language !== ""}
        />
      );
    case "math":
      return <Formula tex={block.text} block />;
    case "quote":
      return (
        <blockquote>
          <Blocks blocks={block.blocks} resolve={resolve} />
        </blockquote>
      );
    case "rule":
      return <hr />;
    case "list":
      return createElement(
        block.ordered ? "ol" : "ul",
        block.ordered ? { start: block.start } : null,
        block.items.map((item, i) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
          <li key={i}>
            <Blocks blocks={item} resolve={resolve} />
          </li>
        )),
      );
    case "table":
      return <MarkdownTable block={block} resolve={resolve} />;
  }
}

function MarkdownTable({ block, resolve }: { block: Extract<Block, { kind: "table" }>; resolve: Resolve }) {
  return (
    // A group and not a region: a page may have many, and landmarks must be told apart.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for forms
    <div role="group" className="table-wrap" tabIndex={0} aria-label="Table">
      <table className="table">
        <thead>
          <tr>
            {block.head.map((cell, i) => {
              const Cell = plainText(cell).trim() === "" ? "td" : "th";
              return (
                // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
                <Cell key={i}>
                  <Inlines parts={cell} resolve={resolve} />
                </Cell>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {block.rows.map((row, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
            <tr key={i}>
              {row.map((cell, j) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
                <td key={j}>
                  <Inlines parts={cell} resolve={resolve} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Blocks({ blocks, resolve }: { blocks: readonly Block[]; resolve: Resolve }) {
  // biome-ignore lint/suspicious/noArrayIndexKey: parsed text has no other identity
  return blocks.map((block, i) => <OneBlock key={i} block={block} resolve={resolve} />);
}

export const Markdown = memo(function Markdown({
  text,
  resolve = external,
}: {
  text: string;
  resolve?: Resolve;
}) {
  return (
    <div className="prose">
      <Blocks blocks={parseMarkdown(text)} resolve={resolve} />
    </div>
  );
});
