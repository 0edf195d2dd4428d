/** Small applications: shops, searches, editors. */
import type { Element } from "../html.ts";
import type { Player, Solve } from "../player.ts";
import { chooseDate, ordinal } from "./forms.ts";

/** Types into a field that offers completions, and takes the one that names the place. */
async function completeCity(player: Player, field: string, city: string): Promise<void> {
  await player.type(field, city);
  const isIt = ({ text }: Element) => text.includes(`(${city})`) || text.startsWith(`${city} (`);
  for (let i = 0; i < 30; i++) {
    const lists = (await player.dom("body"))
      .all(".ui-autocomplete")
      .filter((list) => list.style("display") !== "none");
    const item = lists.flatMap((list) => list.all(".ui-menu-item")).find(isIt);
    if (item) {
      await player.click(item);
      return;
    }
    await player.wait(50);
  }
  throw new Error(`no completion for ${city}`);
}

const flight: Solve = async (player) => {
  const [, kind, from, to, date] = /Book the (\w+) one-way flight from: (.+) to: (.+) on (\S+?)\.$/.exec(
    await player.query(),
  )!;
  await completeCity(player, "#flight-from", from!);
  await completeCity(player, "#flight-to", to!);
  await chooseDate(player, "#datepicker", date!);
  await player.click("#search");
  const by = kind === "cheapest" ? "data-price" : "data-duration";
  const flights = (await player.dom("#results")).all(".flight");
  const best = flights.toSorted(
    (a, b) => a.first(`[${by}]`)!.number(by) - b.first(`[${by}]`)!.number(by),
  )[0]!;
  await player.click(best.first(".flight-price")!);
};

/** Selects a word, or everything, with the keyboard. */
async function selectText(player: Player, text: string, word: string | null): Promise<void> {
  await player.click(".ql-editor");
  if (word === null) {
    await player.keys("Control+a");
    return;
  }
  const start = text.split(" ").slice(0, text.split(" ").indexOf(word)).join(" ").length;
  const before = start === 0 ? 0 : start + 1;
  await player.keys(
    `Control+Home${before > 0 ? ` ArrowRight*${before}` : ""} Shift+ArrowRight*${word.length}`,
  );
}

const editor: Solve = async (player) => {
  const query = await player.dom("#query");
  const [what, style] = query.all(".bold").map(({ text }) => text) as [string, string];
  const text = (await player.dom(".ql-editor")).text;
  await selectText(player, text, what === "everything" ? null : what);
  // The editor learns of a new selection a moment later.
  await player.wait(100);
  if (query.text.includes("color")) {
    const colors: Record<string, string> = {
      red: "#e60000",
      orange: "#ff9900",
      yellow: "#ffff00",
      green: "#008a00",
      blue: "#0066cc",
      purple: "#9933ff",
    };
    await player.click(".ql-color .ql-picker-label");
    await player.click(`.ql-color [data-value="${colors[style.trim()]}"]`);
  } else await player.click({ bold: ".ql-bold", italics: ".ql-italic", underlined: ".ql-underline" }[style]!);
  await player.submit();
};

export const apps: Record<string, Solve> = {
  "book-flight": flight,
  "book-flight-nodelay": flight,
  "order-food": async (player) => {
    const query = await player.query();
    const items = (await player.dom()).all(".food-item");
    const [, count, kind] = /Order (\d) items that are (.+)$/.exec(query) ?? [];
    if (kind) {
      const item = items.find((each) => each.all("img").some(({ attributes }) => attributes.alt === kind))!;
      for (let i = 0; i < Number(count); i++) await player.click(item.first(".add")!);
    } else {
      const names = query
        .replace("Order one of each item: ", "")
        .split(",")
        .map((name) => name.trim());
      for (const name of names)
        await player.click(items.find((item) => item.first(".item-name")!.text === name)!.first(".add")!);
    }
    await player.click("#submit-order button");
  },
  "phone-book": async (player) => {
    const [, name, what] = /Find (.+) in the contact book and click on their (phone|email|address)/.exec(
      await player.query(),
    )!;
    for (let page = 0; page < 5; page++) {
      if ((await player.dom("#contact")).first(".name")!.text === name) break;
      await player.click(".page-item.next a");
    }
    await player.click(`#contact .${what}`);
  },
  "search-engine": async (player) => {
    const [text, position] = (await player.dom("#query")).all(".bold").map((bold) => bold.text) as [
      string,
      string,
    ];
    await player.type("#search-text", text);
    await player.click("#search");
    const place = ordinal(position) - 1;
    for (let page = 0; page < Math.floor(place / 3); page++) await player.click(".page-item.next a");
    await player.click(`[data-result="${place}"]`);
  },
  "text-editor": editor,
};
