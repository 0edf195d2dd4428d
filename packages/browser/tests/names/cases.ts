/** The pages of `fixtures/`, and what each tool says about the elements in them that have an expected name or role. */
import { Glob } from "bun";
import { type Site, startSite, type Tool } from "../helpers.ts";

const folder = new URL("./fixtures/", import.meta.url).pathname;
export const files = [...new Glob("**/*.html").scanSync(folder)].toSorted();

export interface Case {
  id: string;
  file: string;
  kind: "name" | "role";
  expected: string;
}

export interface Seen {
  role: string;
  name: string;
}

export interface Verdict extends Case {
  got: string;
  isRight: boolean;
}

const pixel = Buffer.from("R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==", "base64");

export async function startFixtures(): Promise<Site> {
  const pages: Parameters<typeof startSite>[0] = {
    "/pixel.gif": () => new Response(pixel, { headers: { "content-type": "image/gif" } }),
  };
  for (const file of files) {
    const html = await Bun.file(folder + file).text();
    pages[`/${file}`] = () => new Response(html, { headers: { "content-type": "text/html; charset=utf-8" } });
  }
  return startSite(pages);
}

/** Numbers the elements of interest, those in shadow trees too, and lists what is expected of them. */
export const listCases = `(() => {
  const found = [];
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      const { name, role } = element.dataset ?? {};
      if (name !== undefined || role !== undefined) {
        element.setAttribute("data-case", found.length);
        found.push({ id: String(found.length), name, role });
      }
      if (element.shadowRoot) look(element.shadowRoot);
    }
  };
  look(document);
  return found;
})()`;

export function casesOf(file: string, listed: { id: string; name?: string; role?: string }[]): Case[] {
  return listed.flatMap(({ id, name, role }) => [
    ...(name === undefined ? [] : [{ id, file, kind: "name" as const, expected: name }]),
    ...(role === undefined ? [] : [{ id, file, kind: "role" as const, expected: role }]),
  ]);
}

export const selectorOf = (id: string) => `[data-case="${id}"]`;

/** Role and name of the first line of a snapshot; text alone has neither. */
export function firstLine(yaml: string): Seen {
  const line = (yaml.split("\n")[0] ?? "")
    .replace(/^- /, "")
    .replace(/^'(.*)'(:.*)?$/, (_, key: string) => key.replaceAll("''", "'"));
  const parts = /^([a-z-]+)(?: ("(?:[^"\\]|\\.)*"))?/.exec(line);
  if (!parts || parts[1] === "text") return { role: "", name: "" };
  return { role: parts[1]!, name: parts[2] ? JSON.parse(parts[2]) : "" };
}

/** `img` is the older spelling of `image`, and no role at all is as good as `generic`. */
function plainRole(role: string): string {
  if (role === "" || role === "none" || role === "presentation") return "generic";
  return role === "img" ? "image" : role;
}

const plainName = (name: string) => name.replace(/[\t\n\f\r ]+/g, " ").replace(/^ | $/g, "");

export function judge(each: Case, seen: Seen[]): Verdict {
  const plain = each.kind === "role" ? plainRole : plainName;
  const got = seen.map((one) => one[each.kind]);
  const isRight = got.some((one) => plain(one) === plain(each.expected));
  return { ...each, got: got[0] ?? "", isRight };
}

/** What the tool says, asked for element by element with the target of a snapshot. */
export async function judgeTool(tool: Tool, site: Site, file: string): Promise<Verdict[]> {
  const stepsMax = 100;
  await tool.post("/navigate", { url: `${site.url}/${file}` });
  const cases = casesOf(file, (await tool.evaluate(listCases)) as Parameters<typeof casesOf>[1]);
  const ids = [...new Set(cases.map(({ id }) => id))];
  const seen = new Map<string, Seen>();
  for (let at = 0; at < ids.length; at += stepsMax) {
    const part = ids.slice(at, at + stepsMax);
    const { body } = await tool.post("/batch", {
      steps: part.map((id) => ({ op: "a11y", target: selectorOf(id) })),
    });
    for (const [index, id] of part.entries())
      seen.set(id, firstLine(body.results[index]?.result?.snapshot ?? ""));
  }
  return cases.map((each) => judge(each, [seen.get(each.id)!]));
}
