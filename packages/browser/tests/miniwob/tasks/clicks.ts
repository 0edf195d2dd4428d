/** Buttons, links, boxes, tabs, menus and dialogs. */
import type { Element } from "../html.ts";
import type { Player, Solve } from "../player.ts";

const byText = (elements: Element[], text: string) => {
  const found = elements.find((element) => element.text === text);
  if (!found) throw new Error(`nothing is labelled ${text}`);
  return found;
};

const namedButton: Solve = async (player) => {
  const [name] = await player.quoted();
  await player.click(byText((await player.dom()).all("button"), name!));
};

const buttonsInOrder: Solve = async (player) => {
  const names = [...(await player.query()).matchAll(/button (\w+)/g)].map((match) => match[1]!);
  const buttons = (await player.dom()).all("button");
  for (const name of names) await player.click(byText(buttons, name));
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
  const [, list] = /Select (?:words similar to )?(.+) and click Submit/.exec(await player.query())!;
  const wanted = list === "nothing" ? [] : list!.split(", ");
  for (const label of (await player.dom()).all("label"))
    if (wanted.some((word) => meansSame(word, label.text))) await player.click(label.first("input")!);
  await player.submit();
};

const plain = (text: string) => text.toLowerCase().replace(/[^a-z]/g, "");

/** Opens what hides a link, and clicks the link. Some panels are empty until they are opened. */
const hiddenLink =
  (opener: (panel: Element) => string): Solve =>
  async (player) => {
    const [text] = await player.quoted();
    const panelOf = (link: Element) =>
      link.ancestors.find(({ attributes }) => attributes.role === "tabpanel")!;
    const isOpen = (panel: Element) => panel.attributes["aria-hidden"] === "false";
    const panels = (await player.dom()).all("[role=tabpanel]");
    for (const panel of [null, ...panels.filter((each) => !isOpen(each))]) {
      if (panel) await player.click(opener(panel));
      if (await player.isOver()) return;
      const links = (await player.dom()).all(".alink");
      const link = links.find((each) => each.text === text);
      if (!link) continue;
      if (!isOpen(panelOf(link))) await player.click(opener(panelOf(link)));
      await player.click(link);
      return;
    }
    await player.click((await player.dom()).all(".alink").find((link) => plain(link.text) === plain(text!))!);
  };
const linkInTab = hiddenLink((panel) => `a[href="#${panel.attributes.id}"]`);
const linkInSection = hiddenLink((panel) => `[aria-controls="${panel.attributes.id}"]`);

const section: Solve = async (player) => {
  await player.click("#area h3");
  await player.visible(".ui-accordion-content");
  await player.submit();
};

/** Points at each menu on the way, so that the next one opens, and clicks the last entry. */
async function followMenu(player: Player, item: Element): Promise<void> {
  const entry = (li: Element) => li.elements.find(({ tag }) => tag === "div")!;
  for (const li of item.ancestors.filter(({ tag }) => tag === "li").toReversed())
    await player.hover(entry(li));
  await player.click(entry(item));
}

const pie: Solve = async (player) => {
  const [label] = await player.quoted();
  const center = (await player.dom("#divWheel")).all("text");
  await player.click(center.find(({ text }) => text === "+") ?? center.at(-1)!);
  // The slices grow out of the middle.
  for (let i = 0; i < 20; i++) {
    const item = (await player.dom("#divWheel")).all("text").find(({ text }) => text === label);
    const isThere = item && (await player.click(item).catch(() => null));
    if (isThere) return;
    await player.wait(100);
  }
};

const row = (post: Element) => post.first(".username")?.text;
const posts = (areaOfPosts: Element, user: string) =>
  areaOfPosts.all(".media").filter((post) => row(post) === user);

const several: Solve = async (player) => {
  const bold = (await player.dom("#query")).all(".bold").map(({ text }) => text);
  const [action, user] = [bold[0]!.toLowerCase(), bold.at(-1)!];
  const found = posts(await player.dom(), user);
  const count = bold.length === 3 ? Number(bold[1]) : found.length;
  for (const post of found.slice(0, count)) await player.click(post.first(`.${action}`)!);
  await player.click("role=button[name=Submit]");
};

export const clicks: Record<string, Solve> = {
  "button-delay": async (player) => {
    const seconds = Number(/wait (\d+) seconds/.exec(await player.query())![1]);
    await player.click("#subbtn");
    await player.wait(seconds * 1_000 - 40);
    await player.click("#subbtn2");
  },
  "buy-ticket": async (player) => {
    const wanted = await player.query();
    const by = /cost/.test(wanted) ? "data-price" : "data-duration";
    const value = (flight: Element) => flight.first(`[${by}]`)!.number(by);
    const flights = (await player.dom()).all(".flight").toSorted((a, b) => value(a) - value(b));
    const flight = /cheapest|shortest/.test(wanted) ? flights[0]! : flights.at(-1)!;
    await player.click(flight.first("button")!);
  },
  "click-button": namedButton,
  "click-button-sequence": buttonsInOrder,
  "click-checkboxes": boxes,
  "click-checkboxes-large": boxes,
  "click-checkboxes-soft": boxes,
  "click-checkboxes-transfer": boxes,
  "click-collapsible": section,
  "click-collapsible-2": linkInSection,
  "click-collapsible-2-nodelay": linkInSection,
  "click-collapsible-nodelay": section,
  "click-color": async (player) => {
    const asked = (await player.dom("#query")).elements[0]!;
    await player.click(`#area [data-color="${asked.style("background-color") || asked.text}"]`);
  },
  "click-dialog": async (player) => void (await player.click(".ui-dialog-titlebar-close")),
  "click-dialog-2": async (player) => {
    const [name] = await player.quoted();
    await player.click(name === "x" ? ".ui-dialog-titlebar-close" : `role=button[name="${name}"]`);
  },
  "click-link": async (player) => {
    const [text] = await player.quoted();
    await player.click(byText((await player.dom()).all(".alink"), text!));
  },
  "click-menu": async (player) => {
    const names = (await player.query()).replace(/^Select /, "").split(">");
    const items = (await player.dom()).all("li");
    const label = (li: Element) => li.elements[0]!.text;
    const way = (li: Element) =>
      [li, ...li.ancestors.filter(({ tag }) => tag === "li")].toReversed().map(label);
    await followMenu(player, items.find((li) => way(li).join(">") === names.join(">"))!);
  },
  "click-menu-2": async (player) => {
    const query = await player.dom("#query");
    const icon = query.first(".ui-icon")?.classes.at(-1);
    const label = /labeled "(.+)"/.exec(query.text)?.[1];
    await player.click("#open-menu");
    await player.visible("#menu");
    const items = (await player.dom("#menu")).all("li").filter((li) => li.all("li").length === 0);
    await followMenu(player, items.find((li) => (icon ? li.first(`.${icon}`) : li.text === label))!);
  },
  "click-option": async (player) => {
    const [, name] = /Select (.+) and click Submit/.exec(await player.query())!;
    await player.click(byText((await player.dom()).all("label"), name!).first("input")!);
    await player.submit();
  },
  "click-pie": pie,
  "click-pie-nodelay": pie,
  "click-shades": async (player) => {
    const [, color] = /shades of (\w+)/.exec(await player.query())!;
    for (const shade of (await player.dom()).all(`[data-color=${color}]`)) await player.click(shade);
    await player.click("#submit");
  },
  "click-tab": async (player) => {
    await player.click(`a[href="#tabs-${/#(\d)/.exec(await player.query())![1]}"]`);
  },
  "click-tab-2": linkInTab,
  "click-tab-2-easy": linkInTab,
  "click-tab-2-hard": linkInTab,
  "click-tab-2-medium": linkInTab,
  "click-test": async (player) => void (await player.submit()),
  "click-test-2": buttonsInOrder,
  "click-test-transfer": buttonsInOrder,
  "click-widget": async (player) => {
    const [kind] = await player.quoted();
    await player.click((await player.dom()).first(`[data-type=${kind}]`)!);
  },
  "navigate-tree": async (player) => {
    const [name] = await player.quoted();
    const entry = byText((await player.dom()).all("span"), name!);
    const folders = entry.parent!.ancestors.filter(({ tag }) => tag === "li").toReversed();
    for (const folder of folders) {
      await player.click(folder.first(".hitarea")!);
      await player.wait(50);
    }
    await player.click(entry);
  },
  "odd-or-even": async (player) => {
    for (const line of (await player.dom()).all(".row")) {
      const isOdd = Number(line.first(".display-number")!.text) % 2 !== 0;
      await player.click(line.first(isOdd ? ".odd" : ".even")!);
    }
    await player.click("#submit");
  },
  "social-media": async (player) => {
    const [user, action] = (await player.dom("#query")).all(".bold").map(({ text }) => text) as [
      string,
      string,
    ];
    const post = posts(await player.dom(), user)[0]!;
    const direct = post.first(`.${action.toLowerCase()}`);
    const isDirect = direct !== undefined && direct.tag === "span";
    if (!isDirect) await player.click(post.first(".more")!);
    const entry = isDirect ? direct : post.all("li").find(({ text }) => text.startsWith(action))!;
    await player.click(entry);
  },
  "social-media-all": several,
  "social-media-some": several,
  "unicode-test": namedButton,
};
