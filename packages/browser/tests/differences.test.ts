/**
 * What is told of a change, against a comparison of two complete snapshots: documents and mutations are made by chance,
 * with frames, shadow roots, hidden parts and pages larger than a snapshot. No difference may be missed.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { onEachEngine } from "./engines.ts";
import { type Site, startSite, startTool, type Tool } from "./helpers.ts";

const documentsMax = Number(process.env.DIFFERENCES_DOCUMENTS ?? 12);
const roundsPerDocument = 5;

/** Runs in the page: builds a document by chance, then changes it by chance; every text in it has a word of its own. */
function chance(seed: number, isLarge: boolean): void {
  let state = seed;
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (count: number) => Math.floor(random() * count);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)]!;
  let words = 0;
  const word = () => `w${seed}x${++words}q`;
  const tags = [
    "div",
    "p",
    "span",
    "ul",
    "li",
    "button",
    "a",
    "h2",
    "input",
    "textarea",
    "table",
    "section",
    "label",
    "select",
  ];
  const made = () => {
    const tag = pick(tags);
    const element = document.createElement(tag);
    if (tag === "input") (element as HTMLInputElement).value = word();
    else if (tag === "a") {
      element.setAttribute("href", `/${word()}`);
      element.textContent = word();
    } else if (tag === "select") element.innerHTML = `<option>${word()}<option>${word()}`;
    else if (tag === "table")
      element.innerHTML = `<tr><td>${word()}<td><button>${word()}</button><tr><td>${word()}<td>${word()}`;
    else if (random() < 0.7) element.textContent = word();
    if (random() < 0.1)
      element.setAttribute("role", pick(["alert", "status", "dialog", "group", "listitem"]));
    if (random() < 0.1) element.setAttribute("aria-label", word());
    if (random() < 0.1) element.hidden = true;
    return element;
  };
  const roots = (): ParentNode[] => {
    const found: ParentNode[] = [document.body];
    for (const element of document.querySelectorAll("*")) {
      if (element.shadowRoot) found.push(element.shadowRoot);
      const inner = element instanceof HTMLIFrameElement ? element.contentDocument?.body : null;
      if (inner) found.push(inner);
    }
    return found;
  };
  const anywhere = (): Element => {
    const all = [...pick(roots()).querySelectorAll("*:not(option, iframe, tr, tbody, script)")];
    return all.length > 0 ? pick(all) : document.body;
  };
  const holder = () => {
    const element = anywhere();
    return /^(INPUT|TEXTAREA|SELECT|TABLE)$/.test(element.tagName) ? document.body : element;
  };
  const grow = () => {
    const within = holder();
    const element = made();
    if (random() < 0.1 && element.tagName === "DIV")
      element.attachShadow({ mode: "open" }).append(made(), made());
    within.insertBefore(element, random() < 0.5 ? within.firstChild : null);
  };
  const changes: (() => void)[] = [
    grow,
    grow,
    () => {
      const element = holder();
      element.textContent = word();
    },
    () => {
      const element = anywhere();
      if (element.tagName !== "BODY") element.remove();
    },
    () => {
      const element = anywhere() as HTMLElement;
      element.hidden = !element.hidden;
    },
    () => (anywhere() as HTMLElement).style?.setProperty("display", pick(["none", "block", ""])),
    () => (anywhere() as HTMLElement).classList.toggle("gone"),
    () => {
      const element = holder();
      element.insertBefore(document.createTextNode(word()), pick([null, element.firstChild]));
    },
    () => {
      const element = anywhere();
      element.parentElement?.replaceChild(element.cloneNode(true), element);
    },
    () => {
      const element = holder();
      if (element !== document.body) element.outerHTML = `<div><i>${word()}</i>${element.outerHTML}</div>`;
    },
    () => {
      const [from, to] = [anywhere(), holder()];
      if (!from.contains(to) && from.getRootNode() === to.getRootNode() && from !== document.body)
        to.append(from);
    },
    () => {
      const element = anywhere();
      const around = document.createElement("div");
      if (element === document.body) return;
      element.replaceWith(around);
      around.append(element);
    },
    () => anywhere().setAttribute("aria-label", word()),
    () => anywhere().setAttribute("aria-expanded", pick(["true", "false"])),
    () => {
      const field = pick([...document.querySelectorAll("input, textarea")]) as HTMLInputElement | undefined;
      if (field) field.value = word();
    },
    () => {
      const field = pick([...document.querySelectorAll("input, button, select")]) as
        | HTMLInputElement
        | undefined;
      if (field) field.disabled = !field.disabled;
    },
    () => {
      const list = holder();
      if (list.lastElementChild && list !== document.body) list.prepend(list.lastElementChild);
    },
  ];
  const page = globalThis as typeof globalThis & { change: () => void };
  page.change = () => {
    for (let count = 1 + below(3); count > 0; count--) pick(changes)();
  };
  for (let count = isLarge ? 500 : 5 + below(40); count > 0; count--) grow();
}

const pages = {
  "/": `<title>Any</title><style>.gone { visibility: hidden }</style><body>
    <script>const make = ${chance.toString()};
    const { searchParams } = new URL(location.href);
    if (searchParams.has("frame")) document.body.append(Object.assign(document.createElement("iframe"), { srcdoc: "<p>inner</p><button>in</button>", width: 300, height: 200 }));
    addEventListener("load", () => make(Number(searchParams.get("seed")), searchParams.has("large")))</script>`,
};

/** Without focus and place, and without wrappers that say nothing. */
const plain = (yaml: string) =>
  yaml
    .replace(/ \[(ref=\w+|active|covered|cursor=pointer|clickable)\]/g, "")
    .replace(/^ *- generic:?$\n?/gm, "")
    .replace(/^ +/gm, "");
const wordsIn = (text: string) => new Set(text.match(/w\d+x\d+q/g) ?? []);

/** For the message of a failure: the lines between what both have at their beginning and end. */
function differenceOf(before: string, after: string): string {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < now.length && old[start] === now[start]) start++;
  let end = 0;
  while (end < Math.min(now.length, old.length) - start && old.at(-1 - end) === now.at(-1 - end)) end++;
  const part = (lines: string[], sign: string) =>
    lines.slice(start, lines.length - end).map((line) => `${sign} ${line}`);
  return [...part(old, "<"), ...part(now, ">")].slice(0, 60).join("\n");
}

onEachEngine("differences", (engine) => {
  let tool: Tool;
  let site: Site;
  beforeAll(() => {
    tool = startTool({ engine });
    site = startSite(pages);
  });
  afterAll(async () => {
    await tool.stop();
    await site.stop();
  });

  const whole = async () => plain(await tool.snapshot("?max_chars=10000000"));

  async function check(seed: number, isLarge: boolean): Promise<void> {
    const query = `seed=${seed}${seed % 3 === 0 ? "&frame" : ""}${isLarge ? "&large" : ""}`;
    await tool.post("/navigate", { url: `${site.url}/?${query}` });
    let before = await whole();
    for (let round = 0; round < roundsPerDocument; round++) {
      const shown = (await tool.get("/a11y")).body;
      if (isLarge) expect(shown.truncated).toBe(true);
      await tool.evaluate("change()");
      const { changes, truncated } = (await tool.get("/a11y?since=true")).body;
      const after = await whole();
      const what = `seed ${seed}, round ${round}:\n${changes}\nbut\n${differenceOf(before, after)}`;
      if (before !== after) expect(changes, `nothing told, ${what}`).not.toBe("");
      const [old, told] = [wordsIn(before), wordsIn(changes)];
      const missed = [...wordsIn(after)].filter((word) => !old.has(word) && !told.has(word));
      if (!truncated) expect(missed, `not told, ${what}`).toEqual([]);
      const left = wordsIn(after);
      const gone = [...old].filter((word) => !left.has(word));
      if (gone.length > 0) expect(changes, `gone, ${what}`).toMatch(/^[-~]/m);
      before = after;
    }
  }

  test("of documents made by chance none is missed", async () => {
    for (let seed = 1; seed <= documentsMax; seed++) await check(seed, false);
  }, 120_000);

  test("of pages larger than a snapshot none is missed", async () => {
    for (let seed = 101; seed <= 101 + documentsMax / 6; seed++) await check(seed, true);
  }, 120_000);
});
