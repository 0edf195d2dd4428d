import { useEffect } from "react";
import { client } from "../../lib/client.ts";
import { useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { Markdown } from "../../ui/markdown.tsx";
import { Loaded } from "../../ui/states.tsx";
import type { PageProps } from "../index.ts";

const FIRST = "quick-start";
/** Folders of the documentation and what they are called; what is in none of them is a guide. */
const FOLDERS: Record<string, string> = { reference: "Reference", decisions: "Decisions" };
const SECTIONS = ["Guides", "Reference", "Decisions"];
const ENTRIES_MAX = 1_000;
const ORDER = ["quick-start", "concepts", "clients", "operators-guide", "cli"];

interface Entry {
  path: string;
  title: string;
}

/** The table of contents as the service publishes it. */
function entriesOf(llms: string): Entry[] {
  const links = [...llms.matchAll(/^- \[(.+?)\]\(\/docs\/(.+?)\.md\)$/gm)];
  const entries = links.map(([, title, path]) => ({ title: title!, path: path! }));
  const rank = (entry: Entry) => {
    const place = ORDER.indexOf(entry.path);
    return SECTIONS.indexOf(sectionOf(entry)) * ENTRIES_MAX + (place < 0 ? ORDER.length : place);
  };
  return entries.sort((a, b) => rank(a) - rank(b) || a.title.localeCompare(b.title));
}

const sectionOf = ({ path }: Entry) => FOLDERS[path.split("/")[0]!] ?? SECTIONS[0]!;

/** `../reference/rpc.md#x` of a page becomes the console's own address of that page. */
const resolver = (current: string) => (href: string) => {
  if (/^https?:/.test(href) || href.startsWith("#")) return href;
  const target = new URL(href, `http://docs/docs/${current}`);
  if (target.pathname.startsWith("/docs/")) return `${target.pathname.replace(/\.md$/, "")}${target.hash}`;
  return null;
};

export function Page({ params }: PageProps) {
  const current = [params.folder, params.name ?? FIRST].filter(Boolean).join("/");
  const contents = useQuery("docs", () => client.rest.text("/llms.txt"));
  const text = useQuery(`docs ${current}`, () => client.rest.text(`/docs/${current}.md`));
  const isLoaded = text.data !== undefined;
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page has other headings
  useEffect(() => {
    // The heading did not exist yet when the browser looked for it.
    if (isLoaded && location.hash)
      document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }, [isLoaded, current]);
  return (
    <div className="split">
      <nav aria-label="Documentation" className="list with-detail">
        {[...Map.groupBy(entriesOf(contents.data ?? ""), sectionOf)].map(([section, entries]) => (
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
        <Loaded query={text} lines={10}>
          {(markdown) => <Markdown text={markdown} resolve={resolver(current)} />}
        </Loaded>
        <p className="muted small">
          <a href={`/docs/${current}.md`}>This page as Markdown</a>
        </p>
      </article>
    </div>
  );
}
