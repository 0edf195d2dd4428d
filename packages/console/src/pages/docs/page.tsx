import { useEffect } from "react";
import { BASE } from "../../lib/base.ts";
import { client } from "../../lib/client.ts";
import { sectionOf, useDocs } from "../../lib/docs.ts";
import { headingId, parseMarkdown, plainText } from "../../lib/markdown.ts";
import { useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { Markdown } from "../../ui/markdown.tsx";
import { Skeleton } from "../../ui/skeleton.tsx";
import { Loaded } from "../../ui/states.tsx";
import type { PageProps } from "../index.ts";
import { hasKeyExamples, KeyChoice, personal, useExampleKey } from "./examples.tsx";
import { Search } from "./search.tsx";

const FIRST = "quick-start";

/** `../reference/rpc.md#x` of a page becomes the console's own address of that page. */
const resolver = (current: string) => (href: string) => {
  if (/^https?:/.test(href) || href.startsWith("#")) return href;
  const target = new URL(href, `http://docs/docs/${current}`);
  if (target.pathname.startsWith("/docs/")) return `${target.pathname.replace(/\.md$/, "")}${target.hash}`;
  return null;
};

const OUTLINE_MIN = 3;

/** The headings of the page, to go there. */
function Outline({ text }: { text: string }) {
  const headings = parseMarkdown(text).flatMap((block) =>
    block.type === "heading" && (block.depth === 2 || block.depth === 3) ? [block] : [],
  );
  if (headings.length < OUTLINE_MIN) return null;
  return (
    <nav aria-label="On this page" className="page-outline">
      <p className="muted small">On this page</p>
      {headings.map(({ depth, tokens }) => (
        <a
          key={headingId(tokens)}
          href={`#${headingId(tokens)}`}
          className={depth === 3 ? "deeper" : undefined}
        >
          {plainText(tokens)}
        </a>
      ))}
    </nav>
  );
}

export function Page({ params }: PageProps) {
  const current = [params.folder, params.name ?? FIRST].filter(Boolean).join("/");
  const contents = useDocs();
  const { key, setKey } = useExampleKey();
  const text = useQuery(`docs ${current}`, () => client.rest.text(`/docs/${current}.md`));
  const isLoaded = text.data !== undefined;
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page has other headings
  useEffect(() => {
    // The heading did not exist yet when the browser looked for it.
    if (isLoaded && location.hash)
      document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }, [isLoaded, current]);
  return (
    <div className="split docs">
      <nav aria-label="Documentation" className="list with-detail">
        <Search />
        {[...Map.groupBy(contents.data ?? [], sectionOf)].map(([section, entries]) => (
          <div key={section}>
            <p className="muted small">{section}</p>
            {entries.map(({ path, title }) => (
              <Link key={path} href={`/docs/${path}`} aria-current={path === current ? "page" : undefined}>
                {title}
              </Link>
            ))}
          </div>
        ))}
      </nav>
      <article className="stack">
        <Loaded query={text} outline={<Skeleton lines={14} />}>
          {(markdown) => (
            <>
              {hasKeyExamples(markdown) && <KeyChoice chosen={key} onChoose={setKey} />}
              <Markdown text={personal(markdown, key)} resolve={resolver(current)} />
            </>
          )}
        </Loaded>
        <p className="muted small">
          <a href={`${BASE}/docs/${current}.md`}>This page as Markdown</a>
        </p>
      </article>
      {text.data !== undefined && <Outline text={text.data} />}
    </div>
  );
}
