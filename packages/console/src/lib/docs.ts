import { client } from "./client.ts";
import { type Query, useQuery } from "./query.ts";

/** Folders of the documentation and what they are called; what is in none of them is a guide. */
const FOLDERS: Record<string, string> = { reference: "Reference", decisions: "Decisions" };
const SECTIONS = ["Guides", "Reference", "Decisions"];
const ENTRIES_MAX = 1_000;
const ORDER = ["quick-start", "concepts", "clients", "operators-guide", "cli"];

export interface DocsEntry {
  path: string;
  title: string;
}

export const sectionOf = ({ path }: DocsEntry) => FOLDERS[path.split("/")[0]!] ?? SECTIONS[0]!;

function entriesOf(llms: string): DocsEntry[] {
  const links = [...llms.matchAll(/^- \[(.+?)\]\(\/docs\/(.+?)\.md\)$/gm)];
  const entries = links.map(([, title, path]) => ({ title: title!, path: path! }));
  const rank = (entry: DocsEntry) => {
    const place = ORDER.indexOf(entry.path);
    return SECTIONS.indexOf(sectionOf(entry)) * ENTRIES_MAX + (place < 0 ? ORDER.length : place);
  };
  return entries.sort((a, b) => rank(a) - rank(b) || a.title.localeCompare(b.title));
}

/** The table of contents as the service publishes it. */
export const useDocs = (): Query<DocsEntry[]> =>
  useQuery("docs", async () => entriesOf(await client.rest.text("/llms.txt")));
