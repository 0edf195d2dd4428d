import { headingId, parseInline, plainText } from "./markdown.ts";

export interface SearchedPage {
  path: string;
  title: string;
  text: string;
}

export interface Hit {
  href: string;
  title: string;
  /** Where on the page; empty at its top. */
  heading: string;
  excerpt: string;
}

const HITS_MAX = 20;
const EXCERPT_BEFORE = 40;
const EXCERPT_LENGTH = 140;
const IN_TITLE = 20;
const IN_HEADING = 8;
/** Pages that explain come before those that list. */
const LISTS = /^(reference|decisions)\//;

/** A page at its headings, code blocks left whole: a # in them is no heading. */
function sectionsOf({ text }: SearchedPage): { heading: string; body: string }[] {
  const sections = [{ heading: "", body: "" }];
  let isCode = false;
  for (const line of text.split("\n")) {
    if (line.startsWith("```")) isCode = !isCode;
    const heading = isCode ? null : /^#{2,3} (.+)$/.exec(line);
    if (heading) sections.push({ heading: heading[1]!, body: "" });
    else sections.at(-1)!.body += `${line}\n`;
  }
  return sections;
}

/** Every word must be there, in any order; those in titles and headings count most. */
export function searchDocs(pages: readonly SearchedPage[], asked: string): Hit[] {
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found: (Hit & { rank: number })[] = [];
  for (const page of pages) {
    for (const { heading, body } of sectionsOf(page)) {
      const parts = parseInline(heading);
      const place = plainText(parts);
      const all = `${page.title}\n${place}\n${body}`.toLowerCase();
      if (!words.every((word) => all.includes(word))) continue;
      const count = (text: string) => words.filter((word) => text.toLowerCase().includes(word)).length;
      const at = Math.max(
        0,
        body.toLowerCase().indexOf(words.find((word) => body.toLowerCase().includes(word)) ?? ""),
      );
      // From the beginning of a word.
      const from = at < EXCERPT_BEFORE ? 0 : body.indexOf(" ", at - EXCERPT_BEFORE) + 1;
      found.push({
        href: `/docs/${page.path}${heading ? `#${headingId(parts)}` : ""}`,
        title: page.title,
        heading: place,
        excerpt: body
          .slice(Math.min(from, at), at + EXCERPT_LENGTH)
          .replace(/[#*`|>]+/g, " ")
          .replace(/\s+/g, " ")
          .trim(),
        rank:
          count(page.title) * IN_TITLE +
          count(place) * IN_HEADING +
          count(body) -
          (LISTS.test(page.path) ? IN_HEADING : 0),
      });
    }
  }
  return found.sort((a, b) => b.rank - a.rank).slice(0, HITS_MAX);
}
