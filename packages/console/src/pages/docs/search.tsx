import { useState } from "react";
import { client } from "../../lib/client.ts";
import { type SearchedPage, searchDocs } from "../../lib/docs-search.ts";
import { useQuery } from "../../lib/query.ts";
import { Link } from "../../lib/router.ts";
import { TextField } from "../../ui/controls.tsx";
import { QueryFailure } from "../../ui/states.tsx";

/** Finds words in all pages; the pages are loaded with the first letter. */
export function Search() {
  const [asked, setAsked] = useState("");
  return (
    <search>
      <TextField
        label="Search the documentation"
        type="search"
        value={asked}
        onChange={setAsked}
        maxLength={100}
        autoComplete="off"
      />
      {asked.trim() !== "" && <Hits asked={asked} onFollow={() => setAsked("")} />}
    </search>
  );
}

function Hits({ asked, onFollow }: { asked: string; onFollow(): void }) {
  const pages = useQuery(
    "docs search",
    async () => JSON.parse(await client.rest.text("/docs/search.json")) as SearchedPage[],
  );
  if (!pages.data) return <QueryFailure query={pages} />;
  const hits = searchDocs(pages.data, asked);
  return (
    <div aria-live="polite" className="hits">
      <p className="muted small">
        {hits.length === 0
          ? "Nothing has all of these words"
          : `${hits.length} ${hits.length === 1 ? "place" : "places"}`}
      </p>
      {hits.map(({ href, title, heading, excerpt }) => {
        // On the page that is open only the browser can go to a heading.
        const To = href.split("#")[0] === location.pathname ? "a" : Link;
        return (
          <To key={href} href={href} onClick={onFollow}>
            <strong>
              {title}
              {heading && `: ${heading}`}
            </strong>
            <span className="muted small clamp">{excerpt}</span>
          </To>
        );
      })}
    </div>
  );
}
