/** Buttons, links, boxes, tabs, menus and dialogs. */
import type { Screen, Solve } from "../player.ts";
import type { Part } from "../screen.ts";

const namedButton: Solve = async (player) => {
  const screen = await player.look();
  await player.click(screen.one("button", screen.quoted[0]));
};

const buttonsInOrder: Solve = async (player) => {
  const screen = await player.look();
  const names = [...screen.query.text.matchAll(/button (\w+)/g)].map((match) => match[1]!);
  for (const name of names) await player.click(screen.one("button", name));
};

/** A little thesaurus: words on one line mean about the same. */
const sameMeaning = `
actual authentic genuine real true
adore cherish enjoy favor like love
afraid alarmed fearful frightened panicked scared terrified
aged ancient antique archaic old
amusing comical funny hilarious humorous laughable
angry annoyed furious irate irritated mad
answer reply respond response
appetizing delectable delicious savory tasty
assassinate kill murder slay
auto automobile automobiles car cars vehicle vehicles
begin commence initiate launch start
big enormous gigantic great huge immense large
blaze fire fires flame flames
bold brave courageous fearless valiant
bunnies bunny hare rabbit rabbits
calm mild peaceful quiet serene still
camouflage conceal disguise hide
carve chop cut slice
cease end finish halt stop
cheerful delighted gleeful glad happy joyful
chubby fat fleshy obese plump
corrupt depraved evil immoral sinful vile wicked
crimson red ruby scarlet vermillion
curious odd peculiar strange unusual weird
despise detest dislike hate loathe
dull dumb foolish stupid unwise
dwelling home homes house houses
erroneous false incorrect mistaken wrong
hog pig pork swine
keep maintain preserve retain sustain
little mini petite small tiny
miserable sad sorrowful tragic unhappy
TV TVs television televisions
`
  .trim()
  .split("\n")
  .map((line) => line.split(" "));
const meansSame = (a: string, b: string) =>
  a === b || sameMeaning.some((group) => group.includes(a) && group.includes(b));

const boxes: Solve = async (player) => {
  const screen = await player.look();
  const [, list] = /Select (?:words similar to )?(.+) and click Submit/.exec(screen.query.text)!;
  const wanted = list === "nothing" ? [] : list!.split(", ");
  for (const box of screen.all("checkbox"))
    if (wanted.some((word) => meansSame(word, box.name))) await player.click(box);
  await player.submit();
};

const isLink = ({ role, flags }: Part) => role === "link" || flags.includes("cursor=pointer");
const linkNamed = (screen: Screen, isIt: (text: string) => boolean) =>
  screen.area.inside.find((part) => isLink(part) && part.role !== "tab" && isIt(part.text));
const letters = (text: string) => text.toLowerCase().replace(/[^a-z]/g, "");

/** Opens what may hide a link until it is there, and clicks it. */
const hiddenLink: Solve = async (player) => {
  let screen = await player.look();
  const wanted = screen.quoted[0]!;
  const tabs = screen.all("tab");
  for (const tab of [null, ...tabs]) {
    if (tab && !/selected|expanded/.test(tab.flags)) {
      await player.click(tab.all("link")[0] ?? tab);
      screen = await player.until((each) => each.all("tabpanel").length > 0 && each);
    }
    const link = linkNamed(screen, (text) => text === wanted);
    if (!link) continue;
    await player.click(link);
    return;
  }
  await player.click(linkNamed(screen, (text) => letters(text) === letters(wanted))!);
};

const section: Solve = async (player) => {
  await player.click((await player.look()).one("tab"));
  await player.wait(300);
  await player.submit();
};

const pie: Solve = async (player) => {
  const screen = await player.look();
  const label = screen.quoted[0]!;
  const isSaid = (part: Part, text: string) => part.text === text && part.hint.startsWith("text");
  await player.click(screen.area.inside.find((part) => isSaid(part, "+"))!);
  // The slices grow out of the middle.
  const isOut = (part: Part) => isSaid(part, label) && part.box.height > 8;
  await player.click(await player.until((each) => each.area.inside.find(isOut)));
};

/** A post and what can be done with it: the smallest thing that holds both the user and a like button. */
const postsBy = (screen: Screen, user: string) =>
  screen.area
    .hinted(/^span\.more|^span\.share/)
    .map((button) => button.around.find((part) => /@/.test(part.text))!)
    .filter((post) => new RegExp(`${user}(\\s|$)`).test(post.text));
const button = (post: Part, action: string) => post.hinted(new RegExp(`^span\\.${action.toLowerCase()}$`))[0];

const several: Solve = async (player) => {
  const screen = await player.look();
  const [, count, user] = /on (all|\d+) posts? by (@\w+)/.exec(screen.query.text)!;
  const posts = postsBy(screen, user!).slice(0, count === "all" ? 100 : Number(count));
  for (const post of posts) await player.click(button(post, screen.quoted[0]!)!);
  await player.submit();
};

/** Whether red, green or blue is the strongest, or none. */
function hue(colour: string): string {
  const [red = 0, green = 0, blue = 0] = (colour.match(/\d+/g) ?? []).map(Number);
  const most = Math.max(red, green, blue);
  return most === red ? "red" : most === green ? "green" : "blue";
}

const colours: Record<string, string> = {
  red: "255, 0, 0",
  lime: "0, 255, 0",
  green: "0, 128, 0",
  blue: "0, 0, 255",
  yellow: "255, 255, 0",
  cyan: "0, 255, 255",
  aqua: "0, 255, 255",
  magenta: "255, 0, 255",
  pink: "255, 0, 255",
  fuchsia: "255, 0, 255",
  olive: "128, 128, 0",
  purple: "128, 0, 128",
  orange: "255, 165, 0",
  black: "0, 0, 0",
  white: "255, 255, 255",
  grey: "128, 128, 128",
  gray: "128, 128, 128",
};

export const clicks: Record<string, Solve> = {
  "button-delay": async (player) => {
    const screen = await player.look();
    await player.click(screen.one("button", "ONE"));
    await player.wait(Number(/wait (\d+) seconds/.exec(screen.query.text)![1]) * 1_000 - 40);
    await player.click(screen.one("button", "TWO"));
  },
  "buy-ticket": async (player) => {
    const screen = await player.look();
    const wanted = screen.query.text;
    const value = (book: Part) => {
      if (/cost|price|cheap|expens/.test(wanted)) return Number(/\$(\d+)/.exec(book.name)![1]);
      const flight = book.around.find((part) => /Duration/.test(part.text))!;
      const [, hours, minutes] = /(\d+)h (\d+)m/.exec(flight.text)!;
      return Number(hours) * 60 + Number(minutes);
    };
    const flights = screen.all("button").toSorted((a, b) => value(a) - value(b));
    await player.click(/cheapest|shortest|lowest|least/.test(wanted) ? flights[0]! : flights.at(-1)!);
  },
  "click-button": namedButton,
  "click-button-sequence": buttonsInOrder,
  "click-checkboxes": boxes,
  "click-checkboxes-large": boxes,
  "click-checkboxes-soft": boxes,
  "click-checkboxes-transfer": boxes,
  "click-collapsible": section,
  "click-collapsible-2": hiddenLink,
  "click-collapsible-2-nodelay": hiddenLink,
  "click-collapsible-nodelay": section,
  "click-color": async (player) => {
    const { query, area } = await player.look();
    const shown = query.inside.find(({ colour }) => colour)?.colour;
    const named = query.text.match(/\w+/g)!.find((word) => word in colours);
    const wanted = shown ?? `rgb(${colours[named!]})`;
    await player.click(area.inside.find(({ colour }) => colour === wanted)!);
  },
  "click-dialog": async (player) => player.submit("Close"),
  "click-dialog-2": async (player) => {
    const [name] = (await player.look()).quoted;
    await player.submit(name === "x" ? "Close" : name);
  },
  "click-link": async (player) => {
    const screen = await player.look();
    await player.click(linkNamed(screen, (text) => text === screen.quoted[0])!);
  },
  "click-menu": async (player) => {
    const names = (await player.look()).query.text.replace(/^Select /, "").split(">");
    for (const [index, name] of names.entries()) {
      const item = await player.until((screen) => screen.all("menuitem").find((each) => each.name === name));
      await (index < names.length - 1 ? player.hover(item) : player.click(item));
    }
  },
  "click-menu-2": async (player) => {
    const { query } = await player.look();
    const icon = query.inside.map(({ hint }) => /\.ui-icon-[\w-]+/.exec(hint)?.[0]).find(Boolean);
    const label = /labeled "(.+)"/.exec(query.text)?.[1];
    const isIt = (item: Part) =>
      icon ? item.inside.some(({ hint }) => hint.includes(`${icon} `)) : item.name === label;
    await player.submit("Menu");
    const opened = await player.until((screen) => screen.all("menuitem").length > 0 && screen);
    for (const item of [null, ...opened.all("menuitem")]) {
      if (item?.flags.includes("disabled")) continue;
      if (item) await player.hover(item);
      if (item) await player.wait(350);
      const found = (await player.look()).all("menuitem").find(isIt);
      if (!found) continue;
      await player.click(found);
      return;
    }
  },
  "click-option": async (player) => {
    const screen = await player.look();
    await player.click(screen.one("radio", /Select (.+) and click Submit/.exec(screen.query.text)![1]));
    await player.submit();
  },
  "click-pie": pie,
  "click-pie-nodelay": pie,
  "click-shades": async (player) => {
    const { query, area } = await player.look();
    const [, wanted] = /shades of (\w+)/.exec(query.text)!;
    for (const shade of area.hinted(/^span background/))
      if (hue(shade.colour) === wanted) await player.click(shade);
    await player.submit();
  },
  "click-tab": async (player) => {
    const screen = await player.look();
    await player.click(screen.one("link", /Tab #\d/.exec(screen.query.text)![0]));
  },
  "click-tab-2": hiddenLink,
  "click-tab-2-easy": hiddenLink,
  "click-tab-2-hard": hiddenLink,
  "click-tab-2-medium": hiddenLink,
  "click-test": async (player) => void (await player.click((await player.look()).one("button"))),
  "click-test-2": buttonsInOrder,
  "click-test-transfer": buttonsInOrder,
  "click-widget": async (player) => {
    const screen = await player.look();
    const [kind] = screen.quoted as [string];
    const fields = screen.all("textbox").toSorted((a, b) => a.box.height - b.box.height);
    // A text area is the field with room for more than one line.
    const field = { text: fields[0], "input-text": fields[0], textarea: fields.at(-1) }[kind];
    await player.click(field ?? screen.one(kind));
  },
  "navigate-tree": async (player) => {
    const wanted = (await player.look()).quoted[0]!;
    const isHandle = ({ hint }: Part) => hint.includes("expandable-hitarea");
    const opened = new Set<string>();
    for (;;) {
      const screen = await player.look();
      const found = screen.area.inside.find(
        (part) => part.ref && part.role !== "listitem" && part.text === wanted,
      );
      if (found) return void (await player.click(found));
      const handle = screen.area.inside.find((part) => isHandle(part) && !opened.has(part.ref));
      if (!handle) throw new Error(`${wanted} is in no folder`);
      opened.add(handle.ref);
      await player.click(handle);
      await player.wait(50);
    }
  },
  "odd-or-even": async (player) => {
    const screen = await player.look();
    const [odd, even] = ["Odd", "Even"].map((name) =>
      screen.all("button").filter((each) => each.name === name),
    );
    const numbers = screen.area.inside.filter(({ role, name }) => role === "text" && /^-?\d+$/.test(name));
    for (const [index, { name }] of numbers.entries())
      await player.click(Number(name) % 2 === 0 ? even![index]! : odd![index]!);
    await player.submit();
  },
  "social-media": async (player) => {
    const screen = await player.look();
    const [, user] = /user (@\w+)/.exec(screen.query.text)!;
    const post = postsBy(screen, user!)[0]!;
    const action = screen.quoted[0]!;
    const direct = button(post, action);
    if (direct) return void (await player.click(direct));
    await player.click(button(post, "more")!);
    const isIt = (part: Part) => part.ref !== "" && part.text.startsWith(action);
    await player.click(await player.until(({ area }) => area.inside.findLast(isIt)));
  },
  "social-media-all": several,
  "social-media-some": several,
  "unicode-test": namedButton,
};
