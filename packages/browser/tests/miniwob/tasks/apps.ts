/** Small applications: shops, searches, editors. */
import type { Player, Solve } from "../player.ts";
import type { Part } from "../screen.ts";
import { chooseDate, ordinal } from "./forms.ts";

/** Types into a field that offers completions, and takes the one that names the place. */
async function completeCity(player: Player, field: Part, city: string): Promise<void> {
  await player.type(field, city);
  const isIt = ({ ref, role, text }: Part) =>
    ref !== "" && role !== "textbox" && (text.includes(`(${city})`) || text.startsWith(`${city} (`));
  await player.click(await player.until(({ area }) => area.inside.findLast(isIt)));
}

const flight: Solve = async (player) => {
  const screen = await player.look();
  const [, kind, from, to, date] = /Book the (\w+) one-way flight from: (.+) to: (.+) on (\S+?)\.$/.exec(
    screen.query.text,
  )!;
  const [start, end, day] = screen.all("textbox");
  await completeCity(player, start!, from!);
  await completeCity(player, end!, to!);
  await chooseDate(player, day!, date!);
  await player.submit("Search");
  const books = await player.until((each) => {
    const found = each.area.inside.filter(
      ({ ref, role, text }) => ref !== "" && role !== "generic" && /^Book flight for/.test(text),
    );
    return found.length > 0 && found;
  });
  const value = (book: Part) => {
    if (kind === "cheapest") return Number(/\$(\d+)/.exec(book.text)![1]);
    const [, hours, minutes] = /(\d+)h (\d+)m/.exec(
      book.around.find(({ text }) => /\d+h \d+m/.test(text))!.text,
    )!;
    return Number(hours) * 60 + Number(minutes);
  };
  await player.click(books.toSorted((a, b) => value(a) - value(b))[0]!);
};

const editor: Solve = async (player) => {
  const screen = await player.look();
  const [, what, style] = /give (?:the text )?(.+) the (?:style|color) (\w+)/.exec(screen.query.text)!;
  const paper = screen.area.inside.find(({ flags }) => flags.includes("editable"))!;
  const { text } = paper;
  await player.click(paper);
  if (what === "everything") await player.keys("Control+a");
  else {
    const before = text.split(" ").slice(0, text.split(" ").indexOf(what!)).join(" ").length;
    const start = before === 0 ? 0 : before + 1;
    await player.keys(
      `Control+Home${start > 0 ? ` ArrowRight*${start}` : ""} Shift+ArrowRight*${what!.length}`,
    );
  }
  // The editor learns of a new selection a moment later.
  await player.wait(100);
  const name = { bold: "ql-bold", italics: "ql-italic", underlined: "ql-underline" }[style!];
  if (name) await player.click(screen.area.hinted(new RegExp(name))[0]!);
  else {
    const colours: Record<string, string> = {
      red: "230, 0, 0",
      orange: "255, 153, 0",
      yellow: "255, 255, 0",
      green: "0, 138, 0",
      blue: "0, 102, 204",
      purple: "153, 51, 255",
    };
    await player.click(screen.area.hinted(/ql-picker-label/)[0]!);
    const isIt = ({ ref, colour }: Part) => ref !== "" && colour === `rgb(${colours[style!]})`;
    await player.click(await player.until(({ area }) => area.inside.find(isIt)));
  }
  await player.submit();
};

export const apps: Record<string, Solve> = {
  "book-flight": flight,
  "book-flight-nodelay": flight,
  "order-food": async (player) => {
    const screen = await player.look();
    // A dish is what holds a plus; its name comes first in it.
    const pluses = screen.area.inside.filter(({ ref, text }) => ref !== "" && text === "+");
    const dishes = pluses.map((plus) => ({
      plus,
      dish: plus.around.find(({ text }) => /[a-z]/i.test(text))!,
    }));
    const [, count, kind] = /Order (\d) items that are (.+)$/.exec(screen.query.text) ?? [];
    if (kind) {
      const { plus } = dishes.find(({ dish }) => dish.all("img").some(({ name }) => name === kind))!;
      for (let i = 0; i < Number(count); i++) await player.click(plus);
    } else {
      const names = screen.query.text.replace("Order one of each item: ", "").split(",");
      for (const name of names)
        await player.click(dishes.find(({ dish }) => dish.all("text")[0]!.name === name.trim())!.plus);
    }
    const isOrder = ({ ref, role, text }: Part) =>
      ref !== "" && role === "button" && /order|submit/i.test(text);
    await player.click((await player.look()).area.inside.find(isOrder)!);
  },
  "phone-book": async (player) => {
    const [, name, what] = /Find (.+) in the contact book and click on their (phone|email|address)/.exec(
      (await player.look()).query.text,
    )!;
    for (let page = 0; page < 5; page++) {
      const screen = await player.look();
      if (screen.one("heading").name === name) {
        const line = screen.area.inside.findLast(
          ({ role, text }) => role !== "text" && new RegExp(`^${what}:`, "i").test(text),
        )!;
        return void (await player.click(line.parts.at(-1)!));
      }
      await player.click(screen.one("link", ">"));
    }
  },
  "search-engine": async (player) => {
    const screen = await player.look();
    await player.type(screen.one("textbox"), screen.quoted[0]!);
    await player.submit("Search");
    const place = ordinal(screen.query.text) - 1;
    for (let page = 0; page < Math.floor(place / 3); page++)
      await player.click(await player.until((each) => each.all("link").find(({ name }) => name === ">")));
    const results = (await player.look()).all("link").filter(({ name }) => !/^(\d+|[<>])$/.test(name));
    await player.click(results[place % 3]!);
  },
  "text-editor": editor,
};
