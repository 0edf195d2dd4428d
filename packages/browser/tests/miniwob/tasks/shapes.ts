/** Drawings: finding shapes, clicking places, drawing lines. */
import { cornersIn, decodePng } from "../picture.ts";
import type { Player, Solve } from "../player.ts";
import type { Part, Point } from "../screen.ts";

interface Shape {
  part: Part;
  size: "large" | "small";
  color: string;
  /** What it may be called. */
  names: string[];
}

function shapeOf(part: Part): Shape {
  const kinds: Record<string, string> = { rect: "rectangle", circle: "circle", polygon: "triangle" };
  const [tag] = part.hint.split(/[ #.]/) as [string];
  const { text, colour: color } = part;
  const kind = /[a-z]/i.test(text) ? "letter" : "digit";
  const names = tag === "text" ? [text, kind, "item"] : [kinds[tag]!, "shape", "item"];
  return { part, size: part.box.height > 15 ? "large" : "small", color, names };
}

const shapesIn = (area: Part) => area.hinted(/^(rect|circle|polygon|text)\b/).map(shapeOf);

/** "large red circle", "small item", "yellow b". */
function matching(shapes: Shape[], description: string): Shape[] {
  const words = description.split(" ");
  const name = words.pop()!;
  return shapes.filter(
    (shape) =>
      shape.names.includes(name) && words.every((word) => word === shape.size || word === shape.color),
  );
}

const inside = ({ x, y }: Point, corner: Point) =>
  x > corner.x + 4 && y > corner.y + 4 && x < corner.x + 146 && y < corner.y + 126;

/** The place that is farthest along a direction and still on the paper. */
function along(from: Point, direction: Point, corner: Point): Point {
  const length = Math.hypot(direction.x, direction.y);
  const at = (pixels: number) => ({
    x: from.x + (direction.x / length) * pixels,
    y: from.y + (direction.y / length) * pixels,
  });
  for (let pixels = 60; pixels > 5; pixels--) if (inside(at(pixels), corner)) return at(pixels);
  return at(5);
}

const towards = (from: Point, to: Point): Point => {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  return { x: (to.x - from.x) / length, y: (to.y - from.y) / length };
};

/** The places of circles, by what their hints say; where the paper begins counts from its corner. */
const circles = (area: Part, hint = /^circle/) => area.hinted(hint).map(({ middle }) => middle);

const whole = ({ x, y }: Point): Point => ({ x: Math.floor(x), y: Math.floor(y) });

const place =
  (find: (area: Part, corner: Point) => Point): Solve =>
  async (player) => {
    const { area } = await player.look();
    const [paper] = area.all("img");
    const wanted = find(area, paper!.box);
    const known = new Set(area.inside.map(({ ref }) => ref));
    await player.at(whole(wanted));
    // The page draws the point a little beside the pointer; the second click makes up for it.
    const after = (await player.look()).area;
    const drawn = after.hinted(/^circle.*blue/).find(({ ref }) => !known.has(ref))?.middle ?? wanted;
    const off = { x: drawn.x - wanted.x, y: drawn.y - wanted.y };
    if (Math.abs(off.x) + Math.abs(off.y) >= 1)
      await player.at(whole({ x: wanted.x - off.x, y: wanted.y - off.y }));
    await player.submit();
  };

/**
 * Of all places on the paper, the one that is best. They are whole pixels away from a point that is drawn there: boxes
 * are rounded, and of drawings of one size all in the same way.
 */
function best(paper: Point, drawn: Point, cost: (point: Point) => number): Point {
  let found: Point = { x: 0, y: 0 };
  let least = Number.POSITIVE_INFINITY;
  for (let x = paper.x + 5 + (drawn.x % 1); x <= paper.x + 145; x++)
    for (let y = paper.y + 5 + (drawn.y % 1); y <= paper.y + 125; y++) {
      const now = cost({ x, y });
      if (now < least) [found, least] = [{ x, y }, now];
    }
  return found;
}

const angleBetween = (a: Point, b: Point) => Math.acos(Math.max(-1, Math.min(1, a.x * b.x + a.y * b.y)));

async function hotAndCold(player: Player): Promise<void> {
  const far = { HOT: [0, 5], WARM: [5, 10], COLD: [10, 40], "ICE COLD": [40, 300] } as Record<
    string,
    [number, number]
  >;
  const field = (await player.look()).area.hinted(/#touch-area/)[0]!;
  let candidates: Point[] = [];
  for (let x = 5; x < 155; x += 2) for (let y = 5; y < 120; y += 2) candidates.push({ x, y });
  while (candidates.length > 0) {
    const mean = (pick: (point: Point) => number) =>
      candidates.reduce((sum, point) => sum + pick(point), 0) / candidates.length;
    const middle = { x: mean(({ x }) => x), y: mean(({ y }) => y) };
    const distance = (a: Point, b: Point) => Math.hypot(a.x - b.x, a.y - b.y);
    const guess = candidates.toSorted((a, b) => distance(a, middle) - distance(b, middle))[0]!;
    await player.hover(field, { position: guess });
    const signal = /ICE COLD|COLD|WARM|HOT/.exec((await player.look()).area.text)?.[0] ?? "";
    if (signal === "HOT") {
      await player.click(field, { position: guess });
      return;
    }
    const [near, wide] = far[signal] ?? [0, 300];
    candidates = candidates.filter((point) => {
      const away = distance(point, guess);
      return point !== guess && away > near - 3 && away < wide + 3;
    });
  }
}

export const shapes: Record<string, Solve> = {
  "bisect-angle": place((area, paper) => {
    const [corner] = circles(area, /^circle.*blue/) as [Point];
    const [a, b] = circles(area, /^circle.*black/).map((end) => towards(corner, end)) as [Point, Point];
    return best(paper, corner, (point) => {
      const way = towards(corner, point);
      const [toA, toB] = [angleBetween(way, a), angleBetween(way, b)];
      const isNear = Math.hypot(point.x - corner.x, point.y - corner.y) < 10;
      return isNear || toA + toB > angleBetween(a, b) + 1e-6 ? 10 : Math.abs(toA - toB);
    });
  }),
  "circle-center": place((area) => circles(area)[0]!),
  "click-shape": async (player) => {
    const { query, area } = await player.look();
    await player.click(matching(shapesIn(area), query.text.replace(/^Click on an? /, ""))[0]!.part);
  },
  "count-shape": async (player) => {
    const { query, area } = await player.look();
    const description = /How many (.+)s are there/.exec(query.text)![1]!;
    await player.submit(String(matching(shapesIn(area), description).length));
  },
  "count-sides": async (player) => {
    const canvas = (await player.look()).area.hinted(/^canvas/)[0]!;
    await player.submit(String(cornersIn(decodePng(await player.picture(canvas)))));
  },
  "draw-circle": async (player) => {
    const [middle] = circles((await player.look()).area) as [Point];
    const at = (part: number) => ({
      x: middle.x + 24 * Math.cos(part * 2 * Math.PI),
      y: middle.y + 24 * Math.sin(part * 2 * Math.PI),
    });
    await player.at(at(0), { action: "press" });
    for (let step = 1; step <= 20; step++) await player.at(at(step / 20), { action: "hover" });
    await player.call("click", { action: "release" });
    await player.submit();
  },
  "draw-line": async (player) => {
    const screen = await player.look();
    const [{ x, y }] = circles(screen.area) as [Point];
    const { box } = screen.one("img");
    const [from, to] = /vertical/.test(screen.query.text)
      ? [
          { x, y: box.y + 6 },
          { x, y: box.y + 104 },
        ]
      : [
          { x: box.x + 6, y },
          { x: box.x + 144, y },
        ];
    await player.at(from!, { dragTo: to });
    await player.submit();
  },
  "find-midpoint": place((area) => {
    const [a, b] = circles(area) as [Point, Point];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  }),
  "grid-coordinate": async (player) => {
    const { query, area } = await player.look();
    const [, x, y] = /\((-?\d+),\s*(-?\d+)\)/.exec(query.text)!;
    // The points lie in a square, from (-2,2) in its upper left corner on.
    const points = area.hinted(/plot-point/);
    const sorted = (axis: "x" | "y") =>
      [...new Set(points.map(({ box }) => box[axis]))].toSorted((a, b) => a - b);
    const [column, line] = [sorted("x")[Number(x) + 2], sorted("y")[2 - Number(y)]];
    await player.click(points.find(({ box }) => box.x === column && box.y === line)!);
  },
  "hot-cold": hotAndCold,
  "identify-shape": async (player) => {
    const { area } = await player.look();
    const [shape] = shapesIn(area) as [Shape];
    const kind =
      shape.names.at(-2) === "shape" ? shape.names[0]! : shape.names[1] === "letter" ? "letter" : "number";
    await player.submit(kind.charAt(0).toUpperCase() + kind.slice(1));
  },
  "right-angle": place((area, paper) => {
    const [corner] = circles(area, /^circle.*blue$/) as [Point];
    const side = towards(corner, circles(area, /^circle.*=black$/)[0]!);
    const ways = [
      { x: -side.y, y: side.x },
      { x: side.y, y: -side.x },
    ].map((way) => along(corner, way, paper));
    const distance = (point: Point) => Math.hypot(point.x - corner.x, point.y - corner.y);
    return ways.toSorted((a, b) => distance(b) - distance(a))[0]!;
  }),
};
