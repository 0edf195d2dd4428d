/** Fields, lists, sliders and dates. */
import type { Player, Solve } from "../player.ts";

/** "2nd" is 2. */
export const ordinal = (text: string) => Number(/(\d+)(?:st|nd|rd|th)/.exec(text)?.[1] ?? 1);

const months = "January February March April May June July August September October November December".split(
  " ",
);

/** In a calendar that shows one month at a time. The date is written month/day/year. */
export async function chooseDate(player: Player, field: string, date: string): Promise<void> {
  const [month, day, year] = date.split("/").map(Number) as [number, number, number];
  await player.click(field);
  for (;;) {
    const calendar = await player.dom("#ui-datepicker-div");
    const shown = months.indexOf(calendar.first(".ui-datepicker-month")!.text) + 1;
    const ahead = (year - Number(calendar.first(".ui-datepicker-year")!.text)) * 12 + month - shown;
    if (ahead === 0) {
      const cell = calendar.all("a.ui-state-default").find((link) => link.text === String(day))!;
      await player.click(cell);
      return;
    }
    await player.click(ahead < 0 ? ".ui-datepicker-prev" : ".ui-datepicker-next");
  }
}

/** Moves the handle of a slider with the keyboard, looking at the value that the page shows. */
async function slide(player: Player, slider: string, output: string, wanted: number): Promise<void> {
  for (let i = 0; i < 5; i++) {
    const ahead = wanted - Number((await player.dom(output)).text);
    if (ahead === 0) return;
    await player.keys(
      `${ahead > 0 ? "ArrowRight" : "ArrowLeft"}*${Math.min(100, Math.abs(ahead))}`,
      `${slider} .ui-slider-handle`,
    );
  }
}

const fillAndSubmit =
  (...fields: string[]): Solve =>
  async (player) => {
    const texts = await player.quoted();
    for (const [index, field] of fields.entries()) await player.type(field, texts[index] ?? texts[0]!);
    await player.submit();
  };

const date: Solve = async (player) => {
  await chooseDate(player, "#datepicker", /\d+\/\d+\/\d+/.exec(await player.query())![0]);
  await player.submit();
};

const autocomplete: Solve = async (player) => {
  const [begin, end = ""] = await player.quoted();
  await player.type("#tags", begin!);
  await player.visible(".ui-menu-item");
  const items = (await player.dom(".ui-autocomplete")).all(".ui-menu-item");
  await player.click(items.find(({ text }) => text.startsWith(begin!) && text.endsWith(end))!);
  await player.submit();
};

/** A search for films, whose fields stand in any order and have a label before or after them. */
const films: Solve = async (player) => {
  const [, genre, director, year] = /Search for (.+) movies directed by (.+) from year (\d+)/.exec(
    await player.query(),
  )!;
  const area = await player.dom();
  const values: [RegExp, string][] = [
    [/genre/i, genre!],
    [/director/i, director!],
    [/year|date/i, year!],
  ];
  for (const input of area.all("input")) {
    const around = [input.parent!, ...input.parent!.ancestors].find(({ text }) =>
      values.some(([name]) => name.test(text)),
    )!;
    await player.type(input, values.find(([name]) => name.test(around.text))![1]);
  }
  await player.click(area.first("button, .final, .ui-submit")!);
};

const color =
  (find: (player: Player) => Promise<string>): Solve =>
  async (player) => {
    await player.type("#col", await find(player));
    // The picker lies over the button until the field is left.
    await player.keys("Tab");
    await player.submit();
  };

const login: Solve = async (player) => {
  const [user, password] = await player.quoted();
  const fields = { "#username": user!, "#password": password! };
  for (const [field, text] of Object.entries(fields)) {
    for (let i = 0; i < 3; i++) {
      const typed = await player.type(field, text).catch((error: Error) => error.message);
      // A question that the page asks when a field is entered takes the fields away.
      if (!(await player.html("#area")).includes("popup-cancel")) break;
      await player.click("#popup-cancel");
      if (i === 2) throw new Error(typed);
    }
  }
  await player.submit();
};

const copy =
  (find: (player: Player) => Promise<string>): Solve =>
  async (player) => {
    await player.keys("Control+a Control+c", await find(player));
    await player.keys("Control+v", "#answer-input");
    await player.submit();
  };

const math: Solve = async (player) => {
  const text = (await player.dom("#math-problem")).text;
  const [left = "", right = ""] = text.split("=").map((side) => side.trim());
  const parts = /^(-?\w+)\s*([-+x*×])\s*(-?\w+)$/.exec(left)!;
  const [, a, sign, b] = parts as unknown as [string, string, string, string];
  const apply = (x: number, y: number) => (sign === "+" ? x + y : sign === "-" ? x - y : x * y);
  let answer: number;
  if (right === "") answer = apply(Number(a), Number(b));
  else {
    // One side of the sign is the unknown; the answer is small and whole.
    const known = Number(right);
    const guesses = Array.from({ length: 2_001 }, (_, i) => i - 1_000);
    answer = guesses.find((x) => apply(a === "x" ? x : Number(a), b === "x" ? x : Number(b)) === known)!;
  }
  await player.type("#math-answer", String(answer));
  await player.submit();
};

export const forms: Record<string, Solve> = {
  "choose-date": date,
  "choose-date-easy": date,
  "choose-date-medium": date,
  "choose-date-nodelay": date,
  "choose-list": async (player) => {
    await player.type("#options", /Select (.+) from the list/.exec(await player.query())![1]!);
    await player.click("#area button");
  },
  "click-scroll-list": async (player) => {
    const names = /Select (.+) from the scroll list/.exec(await player.query())![1]!;
    await player.type("#options", names.split(", ").join("\n"));
    await player.click("#area button");
  },
  "copy-paste": copy(async () => "#to-copy"),
  "copy-paste-2": copy(async (player) => `#text-${ordinal(await player.query())}`),
  "enter-date": async (player) => {
    const [month, day, year] = /(\d+)\/(\d+)\/(\d+)/.exec(await player.query())!.slice(1);
    await player.type("#tt", `${year}-${month}-${day}`);
    await player.submit();
  },
  "enter-password": fillAndSubmit("#password", "#verify"),
  "enter-text": fillAndSubmit("#tt"),
  "enter-text-2": async (player) => {
    const [text] = await player.quoted();
    const isUpper = (await player.query()).includes("upper case");
    await player.type("#tt", isUpper ? text!.toUpperCase() : text!.toLowerCase());
    await player.submit();
  },
  "enter-text-dynamic": fillAndSubmit("#tt"),
  "enter-time": async (player) => {
    const [, hour, minute, half] = /(\d+):(\d+) ([AP])M/.exec(await player.query())!;
    const hours = (Number(hour) % 12) + (half === "P" ? 12 : 0);
    await player.type("#tt", `${String(hours).padStart(2, "0")}:${minute}`);
    await player.submit();
  },
  "find-word": async (player) => {
    const words = (await player.dom("#area")).first("p")!.text.split(" ");
    await player.type("#answer-input", words[ordinal(await player.query()) - 1]!.replace(/[.,]+$/, ""));
    await player.submit();
  },
  "focus-text": async (player) => void (await player.click("#tt")),
  "focus-text-2": async (player) => void (await player.click(`#tt${ordinal(await player.query())}`)),
  "form-sequence": async (player) => {
    const query = await player.query();
    await slide(player, "#slider", "#val", Number(/Select (-?\d+)/.exec(query)![1]));
    await player.click(`#checkbox-${ordinal(query)}`);
    await player.submit();
  },
  "form-sequence-2": async (player) => {
    const [, radio, number, field] = /the (\d)\w+ radio .*"(-?\d+)".* the (\d)\w+ textbox/.exec(
      await player.query(),
    )!;
    await player.click(`[type=radio][value="${radio}"]`);
    await player.type(`#input-${field}`, number!);
    await player.submit();
  },
  "form-sequence-3": async (player) => {
    const [, option, button] = /Choose (.+) from the dropdown, then click the button labeled "(.+)"/.exec(
      await player.query(),
    )!;
    await player.click(".selectric");
    const items = (await player.dom()).all("li");
    await player.click(items.find(({ text }) => text === option)!);
    await player.click(`role=button[name="${button}"]`);
  },
  "login-user": fillAndSubmit("#username", "#password"),
  "login-user-popup": login,
  "multi-layouts": films,
  "multi-orderings": films,
  "read-table": async (player) => {
    const area = await player.dom();
    const wanted = (await player.dom("#query")).first(".bold")!.text;
    const row = area.all("tr").find((each) => each.first("td")!.text === wanted)!;
    await player.type("#tt", row.all("td")[1]!.text);
    await player.submit();
  },
  "read-table-2": async (player) => {
    const area = await player.dom();
    for (const label of area.all("label")) {
      const row = area.all("tr").find((each) => `${each.first("td")!.text}:` === label.text)!;
      await player.type(label.parent!.first("input")!, row.all("td")[1]!.text);
    }
    await player.submit();
  },
  "scroll-text": async (player) => {
    const words = (await player.dom("#text-area")).text.split(" ");
    await player.type("#answer-input", words.at(-1)!.replace(/[.,]+$/, ""));
    await player.submit();
  },
  "scroll-text-2": async (player) => {
    const isDown = (await player.query()).includes("bottom");
    await player.keys(isDown ? "Wheel+3000" : "Wheel-3000", "#text-area");
    await player.submit();
  },
  "sign-agreement": async (player) => {
    const [name, button = "cancel"] = await player.quoted();
    if (name) {
      await player.keys("Wheel+5000", "#text-area");
      await player.type("#name", name);
    }
    await player.click(`#${button.toLowerCase()}`);
  },
  "simple-algebra": math,
  "simple-arithmetic": math,
  "text-transform": async (player) => {
    const letters = (await player.dom("#captcha")).elements.map(({ text }) => text);
    await player.type("#tt", letters.join(""));
    await player.submit();
  },
  "use-autocomplete": autocomplete,
  "use-autocomplete-nodelay": autocomplete,
  "use-colorwheel": color(async (player) => {
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
    return names[/Select (\w+) with/.exec(await player.query())![1]!] ?? "808080";
  }),
  "use-colorwheel-2": color(async (player) =>
    (await player.dom("#query")).first(".cc")!.style("background-color").slice(1),
  ),
  "use-slider": async (player) => {
    await slide(player, "#slider", "#val", Number(/Select (-?\d+)/.exec(await player.query())![1]));
    await player.submit();
  },
  "use-slider-2": async (player) => {
    const values = /\[(.+)\]/
      .exec(await player.query())![1]!
      .split(",")
      .map(Number);
    for (const [index, value] of values.entries())
      await slide(player, `#slider-${index + 1}`, `#val-${index + 1}`, value);
    await player.submit();
  },
  "use-spinner": async (player) => {
    await player.type("#spinner", /Select (-?\d+)/.exec(await player.query())![1]!);
    await player.submit();
  },
  "visual-addition": async (player) => {
    await player.type("#math-answer", String((await player.dom()).all(".addition-block").length));
    await player.submit();
  },
};
