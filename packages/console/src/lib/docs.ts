import { client } from "./client.ts";
import { type Query, useQuery } from "./query.ts";

/** Folders of the documentation and what they are called. */
const FOLDERS: Record<string, string> = { reference: "Reference", decisions: "Decisions" };
/** Guides by their readers, in the order in which they are read; what is in none of them is for developers. */
const READERS: Record<string, readonly string[]> = {
  Users: ["quick-start", "users-guide", "concepts", "clients", "cli", "memory", "browser"],
  Operators: [
    "install",
    "operators-guide",
    "configuration",
    "alerts",
    "oidc",
    "backends",
    "agent-node",
    "pricing",
    "ledger",
    "scaling",
    "browser-binaries",
  ],
  Developers: ["developers-guide", "inference", "compat", "ARCHITECTURE"],
};
const SECTIONS = [...Object.keys(READERS), "Reference", "Decisions"];
const ENTRIES_MAX = 1_000;

export interface DocsEntry {
  path: string;
  title: string;
}

export const sectionOf = ({ path }: DocsEntry): string =>
  FOLDERS[path.split("/")[0]!] ??
  Object.keys(READERS).find((reader) => READERS[reader]!.includes(path)) ??
  "Developers";

function entriesOf(llms: string): DocsEntry[] {
  const links = [...llms.matchAll(/^- \[(.+?)\]\(\/docs\/(.+?)\.md\)$/gm)];
  const entries = links.map(([, title, path]) => ({ title: title!, path: path! }));
  const rank = (entry: DocsEntry) => {
    const section = sectionOf(entry);
    const order = READERS[section] ?? [];
    const place = order.indexOf(entry.path);
    return SECTIONS.indexOf(section) * ENTRIES_MAX + (place < 0 ? order.length : place);
  };
  return entries.sort((a, b) => rank(a) - rank(b) || a.title.localeCompare(b.title));
}

/** The table of contents as the service publishes it. */
export const useDocs = (): Query<DocsEntry[]> =>
  useQuery("docs", async () => entriesOf(await client.rest.text("/llms.txt")));
