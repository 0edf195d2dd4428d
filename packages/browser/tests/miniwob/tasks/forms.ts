/** Fields, lists, sliders and dates. */
import type { Player, Screen, Solve } from "../player.ts";
import type { Part } from "../screen.ts";

/** "2nd" is 2. */
export const ordinal = (text: string) => Number(/(\d+)(?:st|nd|rd|th)/.exec(text)?.[1] ?? 1);

const months = "January February March April May June July August September October November December".split(
  " ",
);

/** In a calendar that shows one month at a time. The date is written month/day/year. */
export async function chooseDate(player: Player, field: Part, date: string): Promise<void> {
  const [month, day, year] = date.split("/").map(Number) as [number, number, number];
  await player.click(field);
  for (;;) {
    const screen = await player.until(
      (each) => /(\w+) \d{4}/.test(each.area.text) && each.all("table").length > 0 && each,
    );
    const [, name, shownYear] = new RegExp(`(${months.join("|")})\\s+(\\d{4})`).exec(screen.area.text)!;
    const ahead = (year - Number(shownYear)) * 12 + month - 1 - months.indexOf(name!);
    if (ahead === 0) return void (await player.click(screen.one("link", String(day))));
    const turn = ahead < 0 ? "Prev" : "Next";
    await player.click(screen.area.inside.find(({ ref, name }) => ref !== "" && name === turn)!);
  }
}

/** Moves the handles of sliders with the keyboard, looking at the value that the page shows after each. */
async function slide(player: Player, index: number, wanted: number): Promise<void> {
  for (let i = 0; i < 5; i++) {
    const { area } = await player.look();
    const handle = area.hinted(/ui-slider-handle/)[index]!;
    const shown = area.inside
      .slice(area.inside.indexOf(handle))
      .find(({ role, name }) => role === "text" && /^-?\d+$/.test(name))!;
    const ahead = wanted - Number(shown.name);
    if (ahead === 0) return;
    const steps = Math.min(100, Math.abs(ahead));
    await player.keys(`${ahead > 0 ? "ArrowRight" : "ArrowLeft"}*${steps}`, handle);
  }
}

/** Each quoted text into the next field; one alone into all of them. */
const fillAndSubmit: Solve = async (player) => {
  const screen = await player.look();
  for (const [index, field] of screen.all("textbox").entries())
    await player.type(field, screen.quoted[index] ?? screen.quoted[0]!);
  await player.click(screen.one("button"));
};

const answer = async (player: Player, { area }: Screen, text: string) => {
  await player.type(area.all("textbox").at(-1)!, text);
  await player.submit();
};

const date: Solve = async (player) => {
  const screen = await player.look();
  await chooseDate(player, screen.one("textbox"), /\d+\/\d+\/\d+/.exec(screen.query.text)![0]);
  await player.submit();
};

const autocomplete: Solve = async (player) => {
  const screen = await player.look();
  const [begin, end = ""] = screen.quoted as [string, string?];
  await player.type(screen.one("textbox"), begin);
  const isIt = ({ ref, role, text }: Part) =>
    ref !== "" &&
    /generic|menuitem|option|listitem/.test(role) &&
    text.startsWith(begin) &&
    text.endsWith(end);
  await player.click(await player.until((each) => each.area.inside.findLast(isIt)));
  await player.submit();
};

/** A search for films, whose fields stand in any order and have a label before or after them. */
const films: Solve = async (player) => {
  const screen = await player.look();
  const [, genre, director, year] = /Search for (.+) movies directed by (.+) from year (\d+)/.exec(
    screen.query.text,
  )!;
  const values: [RegExp, string][] = [
    [/genre/i, genre!],
    [/director/i, director!],
    [/year|date/i, year!],
  ];
  for (const field of screen.all("textbox")) {
    const around = [field, ...field.around].find((part) => values.some(([name]) => name.test(part.text)))!;
    await player.type(field, values.find(([name]) => name.test(around.text))![1]);
  }
  const isSend = (part: Part) =>
    part.ref !== "" &&
    (part.role === "button" || part.flags.includes("cursor=pointer")) &&
    /submit|search|go|ok/i.test(part.text);
  await player.click((await player.look()).area.inside.findLast(isSend)!);
};

const color =
  (find: (screen: Screen) => string): Solve =>
  async (player) => {
    const screen = await player.look();
    await player.type(screen.one("textbox"), find(screen));
    // The picker lies over the button until the field is left.
    await player.keys("Tab");
    await player.submit();
  };

const login: Solve = async (player) => {
  const { quoted } = await player.look();
  for (const [index, text] of quoted.slice(0, 2).entries()) {
    for (let i = 0; i < 3; i++) {
      const field = (await player.look()).all("textbox")[index];
      if (field) await player.type(field, text).catch(() => "");
      // A question that the page asks when a field is entered takes the fields away.
      const cancel = (await player.look()).all("button").find(({ name }) => name === "Cancel");
      if (!cancel) break;
      await player.click(cancel);
    }
  }
  const buttons = (await player.look()).all("button");
  await player.click(buttons.find(({ name }) => name !== "Cancel")!);
};

const copy: Solve = async (player) => {
  const screen = await player.look();
  const areas = screen.area.hinted(/^textarea/);
  const from = areas.length > 1 ? areas[ordinal(screen.query.text) - 1]! : areas[0]!;
  await player.keys("Control+a Control+c", from);
  await player.keys("Control+v", screen.area.hinted(/^input/)[0]!);
  await player.submit();
};

const math: Solve = async (player) => {
  const screen = await player.look();
  const problem = screen.area.inside
    .map(({ text }) => text)
    .find((text) => /^-?\w+ ?[-+x*×] ?-?\w+ ?=/.test(text))!;
  const [left = "", right = ""] = problem.split("=").map((side) => side.trim());
  const [, a, sign, b] = /^(-?\w+)\s*([-+x*×])\s*(-?\w+)$/.exec(left) as unknown as [
    string,
    string,
    string,
    string,
  ];
  const apply = (x: number, y: number) => (sign === "+" ? x + y : sign === "-" ? x - y : x * y);
  const number = (side: string, x: number) => (side === "x" ? x : Number(side));
  // One side of the sign may be the unknown; it is small and whole.
  const guesses = Array.from({ length: 2_001 }, (_, i) => i - 1_000);
  const isKnown = !/x =|x$/.test(left) && a !== "x" && b !== "x";
  const result = isKnown
    ? apply(Number(a), Number(b))
    : guesses.find((x) => apply(number(a, x), number(b, x)) === Number.parseInt(right, 10))!;
  await answer(player, screen, String(result));
};

const wordsIn = (part: Part) => part.text.split(/\s+/);
const bare = (word: string) => word.replace(/[.,]+$/, "");

const tableValue = (screen: Screen, label: string) => {
  const row = screen.all("row").find((each) => each.all("cell")[0]?.text === label)!;
  return row.all("cell")[1]!.text;
};

export const forms: Record<string, Solve> = {
  "choose-date": date,
  "choose-date-easy": date,
  "choose-date-medium": date,
  "choose-date-nodelay": date,
  "choose-list": async (player) => {
    const screen = await player.look();
    await player.type(screen.one("combobox"), /Select (.+) from the list/.exec(screen.query.text)![1]!);
    await player.submit();
  },
  "click-scroll-list": async (player) => {
    const screen = await player.look();
    const names = /Select (.+) from the scroll list/.exec(screen.query.text)![1]!;
    await player.type(screen.one("listbox"), names.split(", ").join("\n"));
    await player.submit();
  },
  "copy-paste": copy,
  "copy-paste-2": copy,
  "enter-date": async (player) => {
    const screen = await player.look();
    const [month, day, year] = /(\d+)\/(\d+)\/(\d+)/.exec(screen.query.text)!.slice(1);
    await answer(player, screen, `${year}-${month}-${day}`);
  },
  "enter-password": fillAndSubmit,
  "enter-text": fillAndSubmit,
  "enter-text-2": async (player) => {
    const screen = await player.look();
    const text = screen.quoted[0]!;
    await answer(
      player,
      screen,
      /upper case/.test(screen.query.text) ? text.toUpperCase() : text.toLowerCase(),
    );
  },
  "enter-text-dynamic": fillAndSubmit,
  "enter-time": async (player) => {
    const screen = await player.look();
    const [, hour, minute, half] = /(\d+):(\d+) ([AP])M/.exec(screen.query.text)!;
    const hours = (Number(hour) % 12) + (half === "P" ? 12 : 0);
    await answer(player, screen, `${String(hours).padStart(2, "0")}:${minute}`);
  },
  "find-word": async (player) => {
    const screen = await player.look();
    const words = wordsIn(screen.one("paragraph"));
    await answer(player, screen, bare(words[ordinal(screen.query.text) - 1]!));
  },
  "focus-text": async (player) => void (await player.click((await player.look()).one("textbox"))),
  "focus-text-2": async (player) => {
    const screen = await player.look();
    await player.click(screen.all("textbox")[ordinal(screen.query.text) - 1]!);
  },
  "form-sequence": async (player) => {
    const screen = await player.look();
    await slide(player, 0, Number(/Select (-?\d+)/.exec(screen.query.text)![1]));
    await player.click(screen.all("checkbox")[ordinal(screen.query.text) - 1]!);
    await player.submit();
  },
  "form-sequence-2": async (player) => {
    const screen = await player.look();
    const [, radio, field] = /the (\d)\w+ radio .* the (\d)\w+ textbox/.exec(screen.query.text)!;
    await player.click(screen.all("radio")[Number(radio) - 1]!);
    await player.type(screen.all("textbox")[Number(field) - 1]!, screen.quoted[0]!);
    await player.submit();
  },
  "form-sequence-3": async (player) => {
    const screen = await player.look();
    const [, option] = /Choose (.+) from the dropdown/.exec(screen.query.text)!;
    await player.click(screen.one("combobox").parent!);
    const isIt = ({ role, text }: Part) => role === "listitem" && text === option;
    await player.click(await player.until(({ area }) => area.inside.find(isIt)));
    await player.submit(screen.quoted[0]);
  },
  "login-user": fillAndSubmit,
  "login-user-popup": login,
  "multi-layouts": films,
  "multi-orderings": films,
  "read-table": async (player) => {
    const screen = await player.look();
    await answer(player, screen, tableValue(screen, /value of (.+) into/.exec(screen.query.text)![1]!));
  },
  "read-table-2": async (player) => {
    const screen = await player.look();
    for (const field of screen.all("textbox"))
      await player.type(field, tableValue(screen, field.parent!.text.replace(/:.*$/, "")));
    await player.submit();
  },
  "scroll-text": async (player) => {
    const screen = await player.look();
    await answer(player, screen, bare(wordsIn(screen.area.hinted(/^textarea/)[0]!).at(-1)!));
  },
  "scroll-text-2": async (player) => {
    const screen = await player.look();
    const isDown = /bottom/.test(screen.query.text);
    await player.keys(isDown ? "Wheel+3000" : "Wheel-3000", screen.one("textbox"));
    await player.submit();
  },
  "sign-agreement": async (player) => {
    const screen = await player.look();
    const [name, button = "Cancel"] = screen.quoted;
    if (name) {
      await player.keys("Wheel+5000", screen.one("textbox"));
      await player.type(screen.all("textbox").at(-1)!, name);
    }
    await player.submit(button);
  },
  "simple-algebra": math,
  "simple-arithmetic": math,
  "text-transform": async (player) => {
    const screen = await player.look();
    const letters = screen.area.inside.filter(({ role }) => role === "text").map(({ name }) => name);
    await answer(player, screen, letters.join(""));
  },
  "use-autocomplete": autocomplete,
  "use-autocomplete-nodelay": autocomplete,
  "use-colorwheel": color(({ query }) => {
    const names: Record<string, string> = {
      red: "ff0000",
      green: "00ff00",
      blue: "0000ff",
      yellow: "ffff00",
      cyan: "00ffff",
      pink: "ff00ff",
      magenta: "ff00ff",
      black: "000000",
      white: "ffffff",
    };
    return names[/Select (\w+) with/.exec(query.text)![1]!] ?? "808080";
  }),
  "use-colorwheel-2": color(({ query }) => {
    const shown = query.inside.find(({ colour }) => colour)!.colour;
    return shown
      .match(/\d+/g)!
      .map((part) => Number(part).toString(16).padStart(2, "0"))
      .join("");
  }),
  "use-slider": async (player) => {
    await slide(player, 0, Number(/Select (-?\d+)/.exec((await player.look()).query.text)![1]));
    await player.submit();
  },
  "use-slider-2": async (player) => {
    const [, values] = /\[(.+)\]/.exec((await player.look()).query.text)!;
    for (const [index, value] of values!.split(",").entries()) await slide(player, index, Number(value));
    await player.submit();
  },
  "use-spinner": async (player) => {
    const { query, area } = await player.look();
    const ahead = Number(/Select (-?\d+)/.exec(query.text)![1]);
    const [arrow] = area.hinted(ahead > 0 ? /ui-spinner-up/ : /ui-spinner-down/);
    for (let i = 0; i < Math.abs(ahead); i++) await player.click(arrow!);
    await player.submit();
  },
  "visual-addition": async (player) => {
    const screen = await player.look();
    await answer(player, screen, String(screen.area.inside.filter(({ colour }) => colour).length));
  },
};
