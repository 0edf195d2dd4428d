/** Everything that is moved from one place to another. */
import type { Element } from "../html.ts";
import type { Player, Point, Solve } from "../player.ts";
import { ordinal } from "./forms.ts";

/** Into the place of another entry of a sorted list: past its middle, from whichever side it comes. */
async function moveEntry(player: Player, list: Element, from: number, to: number): Promise<void> {
  if (from === to) return;
  const entries = list.all("li");
  await player.drag(entries[from]!, { target: entries[to]!.path, x: 20, y: from < to ? 16 : 4 });
}

const middleOf = (shape: Element): Point => {
  if (shape.tag === "circle") return { x: shape.number("cx"), y: shape.number("cy") };
  if (shape.tag === "rect")
    return {
      x: shape.number("x") + shape.number("width") / 2,
      y: shape.number("y") + shape.number("height") / 2,
    };
  const corners = shape.attributes
    .points!.split(" ")
    .map((pair) => pair.split(",").map(Number) as [number, number]);
  const mean = (axis: 0 | 1) => corners.reduce((sum, corner) => sum + corner[axis], 0) / corners.length;
  return { x: mean(0), y: mean(1) };
};

const direction: Solve = async (player) => {
  const [, way] = /(left|right|up|down)/.exec(await player.query())!;
  const steps: Record<string, Point> = {
    left: { x: -25, y: 0 },
    right: { x: 25, y: 0 },
    up: { x: 0, y: -25 },
    down: { x: 0, y: 25 },
  };
  const shape = (await player.dom("#area")).first("circle, rect, polygon")!;
  const { x, y } = middleOf(shape);
  const step = steps[way!]!;
  await player.drag(shape, { target: "#area svg", x: x + step.x, y: y + step.y });
  await player.submit();
};

const kinds: Record<string, string> = { rectangles: "rect", circles: "circle", triangles: "polygon" };

/** Puts shapes into a box side by side. */
async function fill(player: Player, shapes: Element[], box: Element): Promise<void> {
  for (const [index, shape] of shapes.entries()) {
    const x = box.number("x") + 16 + ((index * 16) % (box.number("width") - 24));
    const y = box.number("y") + box.number("height") / 2;
    await player.drag(shape, { target: "#area_svg", x, y });
  }
}

/** Where a cube has to be turned to, in degrees, for a side to be in front. */
const cubeSides: Record<string, { x: number | null; y: number }> = {
  1: { x: null, y: 264 },
  2: { x: 177, y: 175 },
  3: { x: 86, y: 175 },
  4: { x: 0, y: 175 },
  5: { x: 269, y: 175 },
  6: { x: null, y: 88 },
};

/** Turns a cube that has some weight: it follows the pointer slowly, so the button is held until it has come to rest. */
async function turnCube(player: Player): Promise<void> {
  const side = (await player.dom("#query")).first(".bold")!.text;
  const wanted = cubeSides[side]!;
  const degreesPerPixel = 1.18;
  const sluggishness = 6;
  const middle = { x: 200, y: 300 };
  const turn = async (axis: "x" | "y", degrees: number, sign: number) => {
    const pixels = (sign * (degrees + Math.sign(degrees) * sluggishness)) / degreesPerPixel;
    // A pointer that comes and presses at once would turn it by the way that it came.
    await player.call("click", { position: middle, action: "hover" });
    await player.wait(50);
    await player.call("click", { position: middle, action: "press" });
    await player.call("click", { position: { ...middle, [axis]: middle[axis] + pixels }, action: "hover" });
    await player.wait(400);
    await player.call("click", { action: "release" });
  };
  const missing = (from: number, to: number) => ((((to - from) % 360) + 540) % 360) - 180;
  for (let i = 0; i < 14; i++) {
    const cube = await player.dom("#wrapper");
    if (cube.first(".active")!.text === side) break;
    const style = cube.first(".cube")!.style("transform");
    const [, y, x] = /rotateX\(([-\d.]+)deg\) rotateY\(([-\d.]+)deg\)/.exec(style)!.map(Number) as [
      number,
      number,
      number,
    ];
    const [missingY, missingX] = [missing(y, wanted.y), wanted.x === null ? 0 : missing(x, wanted.x)];
    // Upside down, left is right.
    if (Math.abs(missingX) > Math.abs(missingY)) await turn("x", missingX, y > 90 && y < 270 ? -1 : 1);
    else await turn("y", missingY, -1);
  }
  await player.hover("#subbtn");
  await player.wait(100);
  await player.submit();
}

export const drags: Record<string, Solve> = {
  "daily-calendar": async (player) => {
    const query = await player.query();
    const [, amount, unit] = /Create a ([\d.]+) (hour|min)/.exec(query)!;
    const halves = unit === "hour" ? Number(amount) * 2 : Number(amount) / 30;
    const [, from] = /between (\d+[AP]M)/.exec(query)!;
    const first = { "8AM": 16, "12PM": 24, "4PM": 32 }[from!]!;
    const events = (await player.dom()).all(".event").map((event) => {
      const top = Number.parseFloat(event.style("top"));
      return { top, bottom: top + Number.parseFloat(event.style("height")) };
    });
    // Where the lines are; what is in the calendar already lies over some of them.
    const topOf = (half: number) => 43 + (half >> 1) * 41 + (half % 2) * 20;
    const isFree = (start: number) =>
      events.every(({ top, bottom }) => bottom <= topOf(start) || top >= topOf(start + halves));
    const start = Array.from({ length: 9 - halves }, (_, i) => first + i).find(isFree)!;
    // The new entry is not drawn where the pointer is, and it is there that the button has to be let go.
    await player.click(`#hh-${start}`, { action: "press" });
    await player.hover(`#hh-${start}`, { position: { x: 40, y: 12 } });
    await player.hover(`#hh-${start + halves - 1}`, { position: { x: 40, y: 8 } });
    await player.click("#newEvent", { action: "release" });
    await player.type("#event-name", (await player.quoted())[0]!);
    await player.click("#controls .create");
  },
  "drag-box": async (player) => {
    await player.drag("#draggableSmall", { target: "#draggableLarge" });
    await player.submit();
  },
  "drag-circle": direction,
  "drag-cube": turnCube,
  "drag-items": async (player) => {
    const query = await player.query();
    const list = await player.dom("#sortable");
    const entries = list.all("li");
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
    await moveEntry(player, list, from, to);
  },
  "drag-items-grid": async (player) => {
    const query = await player.query();
    const entries = (await player.dom("#sortable")).all("li");
    const from = entries.findIndex(({ text }) => query.startsWith(`Drag ${text} `));
    const shift = { up: -3, down: 3, left: -1, right: 1 }[/(\w+) by one/.exec(query)?.[1] ?? ""] ?? 0;
    const line = /top/.test(query) ? 0 : /bottom/.test(query) ? 6 : 3;
    const column = /left/.test(query) ? 0 : /right/.test(query) ? 2 : 1;
    const to = shift === 0 ? line + column : from + shift;
    await player.drag(entries[from]!, { target: entries[to]!.path, x: from < to ? 28 : 8, y: 20 });
  },
  "drag-shapes": async (player) => {
    const wanted = kinds[/Drag all (\w+)/.exec(await player.query())![1]!]!;
    const svg = await player.dom("#area_svg");
    const [box] = svg.all("#shape-container");
    const shapes = svg.all(wanted).filter((shape) => shape.attributes.id !== "shape-container");
    await fill(player, shapes, box!);
    await player.submit();
  },
  "drag-shapes-2": async (player) => {
    const [, what] = /Drag all (\w+)/.exec(await player.query())!;
    const svg = await player.dom("#area_svg");
    const [left, right] = svg.all("#shape-container");
    const shapes = svg
      .all("rect, circle, polygon")
      .filter((shape) => shape.attributes.id !== "shape-container");
    const isWanted = (shape: Element) => shape.tag === kinds[what!] || shape.attributes.fill === what;
    await fill(player, shapes.filter(isWanted), left!);
    await fill(
      player,
      shapes.filter((shape) => !isWanted(shape)),
      right!,
    );
    await player.submit();
  },
  "drag-single-shape": direction,
  "drag-sort-numbers": async (player) => {
    const value = (entry: Element) => Number(entry.text);
    const count = (await player.dom("#sortable")).all("li").length;
    for (let place = 0; place < count - 1; place++) {
      const list = await player.dom("#sortable");
      const entries = list.all("li");
      const smallest = entries.slice(place).toSorted((a, b) => value(a) - value(b))[0]!;
      await moveEntry(player, list, entries.indexOf(smallest), place);
    }
    await player.submit();
  },
  "resize-textarea": async (player) => {
    const query = await player.query();
    const by = query.includes("larger") ? 25 : -15;
    const isHeight = query.includes("height");
    const handle = isHeight ? ".ui-resizable-s" : ".ui-resizable-e";
    await player.drag(
      handle,
      { target: handle, x: isHeight ? 20 : 3 + by, y: isHeight ? 3 + by : 20 },
      {
        position: { x: isHeight ? 20 : 3, y: isHeight ? 3 : 20 },
      },
    );
    await player.click("#submit");
  },
};
