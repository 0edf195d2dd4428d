/** Everything that is moved from one place to another. */
import type { Player, Solve } from "../player.ts";
import type { Part, Point } from "../screen.ts";
import { ordinal } from "./forms.ts";

const drag = (player: Player, part: Part, to: object) => player.click(part, { dragTo: to });

/** Into the place of another entry of a sorted list: past its middle, from whichever side it comes. */
async function moveEntry(player: Player, entries: Part[], from: number, to: number): Promise<void> {
  if (from !== to)
    await drag(player, entries[from]!, { target: entries[to]!.ref, x: 20, y: from < to ? 16 : 4 });
}

const direction: Solve = async (player) => {
  const screen = await player.look();
  const [, way] = /(left|right|up|down)/.exec(screen.query.text)!;
  const steps: Record<string, Point> = {
    left: { x: -25, y: 0 },
    right: { x: 25, y: 0 },
    up: { x: 0, y: -25 },
    down: { x: 0, y: 25 },
  };
  const shape = screen.area.hinted(/^(circle|rect|polygon)/)[0]!;
  const step = steps[way!]!;
  await drag(player, shape, { x: shape.middle.x + step.x, y: shape.middle.y + step.y });
  await player.submit();
};

const kinds: Record<string, string> = { rectangles: "rect", circles: "circle", triangles: "polygon" };

/** Puts shapes into a box side by side. */
async function fill(player: Player, shapes: Part[], { box }: Part): Promise<void> {
  for (const [index, shape] of shapes.entries()) {
    const x = box.x + 16 + ((index * 16) % (box.width - 24));
    await drag(player, shape, { x, y: box.y + box.height / 2 });
  }
}

/** Turns a cube that has some weight: it follows the pointer slowly, so the button is held until it has come to rest. */
const turnCube: Solve = async (player) => {
  const degreesPerPixel = 1.18;
  const sides = (await player.look()).area.inside.filter(({ ref, text }) => ref && /^[1-6]$/.test(text));
  const mean = (axis: "x" | "y") => sides.reduce((sum, side) => sum + side.middle[axis], 0) / sides.length;
  const middle = { x: mean("x"), y: mean("y") };
  /** A pointer that comes and presses at once would turn it by the way that it came. */
  const point = async () => {
    await player.at(middle, { action: "hover" });
    await player.wait(50);
  };
  const turn = async ({ x, y }: Point) => {
    await player.at(middle, { action: "press" });
    const pixels = (degrees: number) => (degrees + Math.sign(degrees) * 6) / degreesPerPixel;
    await player.at({ x: middle.x + pixels(x), y: middle.y + pixels(y) }, { action: "hover" });
    await player.wait(400);
    await player.call("click", { action: "release" });
    await point();
  };
  await point();
  // It begins on an edge. Four sides lie around it, 1 and 6 are its top and bottom.
  await turn({ x: 45, y: -45 });
  for (let i = 0; i < 4; i++) {
    const screen = await player.look();
    const wanted = screen.quoted[0]!;
    // The side in front is the one under the pointer.
    const front = screen.area.inside.find(({ flags }) => flags.includes("cursor=pointer"));
    if (front?.text === wanted) break;
    await turn(/[16]/.test(wanted) ? { x: 0, y: -90 } : { x: 90, y: 0 });
  }
  const button = (await player.look()).one("button", "Submit");
  await player.hover(button);
  await player.wait(100);
  await player.click(button);
};

export const drags: Record<string, Solve> = {
  "daily-calendar": async (player) => {
    const screen = await player.look();
    const [, amount, unit] = /Create a ([\d.]+) (hour|min)/.exec(screen.query.text)!;
    const halves = unit === "hour" ? Number(amount) * 2 : Number(amount) / 30;
    const [, hour, half] = /between (\d+)([AP])M/.exec(screen.query.text)!;
    const first = ((Number(hour) % 12) + (half === "P" ? 12 : 0)) * 2;
    const slots = screen.area.hinted(/half-hour/);
    const labels = screen.area.inside.filter(({ ref, text }) => ref !== "" && /^\d+[ap]m$/.test(text));
    const top = (slot: number) => labels[slot >> 1]!.box.y + (slot % 2) * 20;
    const events = screen.area.inside.filter(
      ({ ref, box, text }) => ref !== "" && box.width > 95 && box.width < 105 && /^\w+$/.test(text),
    );
    const isFree = (slot: number) =>
      events.every(({ box }) => box.y + box.height <= top(slot) + 4 || box.y >= top(slot + halves) - 4);
    const start = Array.from({ length: 9 - halves }, (_, i) => first + i).find(isFree)!;
    // The new entry is not drawn where the pointer is, and it is there that the button has to be let go.
    await player.click(slots[start]!, { action: "press" });
    await player.hover(slots[start]!, { position: { x: 40, y: 12 } });
    await player.hover(slots[start + halves - 1]!, { position: { x: 40, y: 8 } });
    const known = new Set(screen.area.inside.map(({ ref }) => ref));
    const isNew = ({ ref, box }: Part) => ref !== "" && !known.has(ref) && box.width > 60;
    await player.click(await player.until(({ area }) => area.inside.findLast(isNew)), { action: "release" });
    await player.type(await player.until((each) => each.all("textbox")[0]), screen.quoted[0]!);
    const isCreate = ({ ref, text }: Part) => ref !== "" && /^create$/i.test(text);
    await player.click((await player.look()).area.inside.findLast(isCreate)!);
  },
  "drag-box": async (player) => {
    const screen = await player.look();
    await drag(player, screen.said("s")!, { target: screen.said("L")!.ref });
    await player.submit();
  },
  "drag-circle": direction,
  "drag-cube": turnCube,
  "drag-items": async (player) => {
    const screen = await player.look();
    const query = screen.query.text;
    const entries = screen.all("listitem");
    const from = entries.findIndex(({ text }) => query.startsWith(`Drag ${text} `));
    const to = /to the top/.test(query)
      ? 0
      : /to the bottom/.test(query)
        ? entries.length - 1
        : /down by one/.test(query)
          ? from + 1
          : /up by one/.test(query)
            ? from - 1
            : ordinal(query) - 1;
    await moveEntry(player, entries, from, to);
  },
  "drag-items-grid": async (player) => {
    const screen = await player.look();
    const query = screen.query.text;
    const entries = screen.all("listitem");
    const from = entries.findIndex(({ text }) => query.startsWith(`Drag ${text} `));
    const shift = { up: -3, down: 3, left: -1, right: 1 }[/(\w+) by one/.exec(query)?.[1] ?? ""] ?? 0;
    const line = /top/.test(query) ? 0 : /bottom/.test(query) ? 6 : 3;
    const column = /left/.test(query) ? 0 : /right/.test(query) ? 2 : 1;
    const to = shift === 0 ? line + column : from + shift;
    await drag(player, entries[from]!, { target: entries[to]!.ref, x: from < to ? 28 : 8, y: 20 });
  },
  "drag-shapes": async (player) => {
    const { query, area } = await player.look();
    const wanted = kinds[/Drag all (\w+)/.exec(query.text)![1]!]!;
    const shapes = area.hinted(new RegExp(`^${wanted} `)).filter(({ colour }) => colour !== "none");
    await fill(player, shapes, area.hinted(/fill=none/)[0]!);
    await player.submit();
  },
  "drag-shapes-2": async (player) => {
    const { query, area } = await player.look();
    const [, what] = /Drag all (\w+)/.exec(query.text)!;
    const [left, right] = area.hinted(/fill=none/).toSorted((a, b) => a.box.x - b.box.x);
    const shapes = area.hinted(/^(rect|circle|polygon) /).filter(({ colour }) => colour !== "none");
    const isWanted = ({ hint, colour }: Part) => hint.startsWith(`${kinds[what!]} `) || colour === what;
    await fill(player, shapes.filter(isWanted), left!);
    const others = shapes.filter((shape) => !isWanted(shape));
    await fill(player, others, right!);
    await player.submit();
  },
  "drag-single-shape": direction,
  "drag-sort-numbers": async (player) => {
    const value = (entry: Part) => Number(entry.text);
    const { length } = (await player.look()).all("listitem");
    for (let place = 0; place < length - 1; place++) {
      const entries = (await player.look()).all("listitem");
      const smallest = entries.slice(place).toSorted((a, b) => value(a) - value(b))[0]!;
      await moveEntry(player, entries, entries.indexOf(smallest), place);
    }
    await player.submit();
  },
  "resize-textarea": async (player) => {
    const { query, area } = await player.look();
    const by = query.text.includes("larger") ? 25 : -15;
    const { middle } = area.hinted(/ui-resizable-se/)[0]!;
    const to = query.text.includes("height")
      ? { x: middle.x, y: middle.y + by }
      : { x: middle.x + by, y: middle.y };
    await player.at(middle, { dragTo: to });
    await player.submit();
  },
};
