/** Drawings: finding shapes, clicking places, drawing lines. */
import type { Element } from "../html.ts";
import { cornersIn, decodePng } from "../picture.ts";
import type { Player, Point, Solve } from "../player.ts";

const center = (circle: Element): Point => ({ x: circle.number("cx"), y: circle.number("cy") });

interface Shape {
  element: Element;
  size: "large" | "small";
  color: string;
  /** What it may be called. */
  names: string[];
}

function shapeOf(element: Element): Shape {
  const color = element.attributes.fill ?? "";
  const kinds: Record<string, string> = { rect: "rectangle", circle: "circle", polygon: "triangle" };
  const [first, second] = (element.attributes.points ?? "")
    .split(" ")
    .map((pair) => pair.split(",").map(Number));
  const width = {
    rect: element.number("width"),
    circle: element.number("r") * 2,
    polygon: first && second ? (second[0]! - first[0]!) * 2 : 0,
    text: element.number("font-size"),
  }[element.tag as "rect"];
  const isLetter = /[a-z]/i.test(element.text);
  const names =
    element.tag === "text" ? [element.text, isLetter ? "letter" : "digit"] : [kinds[element.tag]!, "shape"];
  return { element, size: width > 15 ? "large" : "small", color, names: [...names, "item"] };
}

const shapesIn = (area: Element) => area.all("rect, circle, polygon, text").map(shapeOf);

/** "large red circle", "small item", "yellow b". */
function matching(shapes: Shape[], description: string): Shape[] {
  const words = description.split(" ");
  const name = words.pop()!;
  return shapes.filter(
    (shape) =>
      shape.names.includes(name) && words.every((word) => word === shape.size || word === shape.color),
  );
}

const inside = ({ x, y }: Point) => x > 4 && y > 4 && x < 146 && y < 126;

/** The place that is farthest along a direction and still on the paper. */
function along(from: Point, direction: Point): Point {
  const length = Math.hypot(direction.x, direction.y);
  const at = (pixels: number) => ({
    x: from.x + (direction.x / length) * pixels,
    y: from.y + (direction.y / length) * pixels,
  });
  for (let pixels = 60; pixels > 5; pixels--) if (inside(at(pixels))) return at(pixels);
  return at(5);
}

const towards = (from: Point, to: Point): Point => {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  return { x: (to.x - from.x) / length, y: (to.y - from.y) / length };
};

const place =
  (find: (svg: Element) => Point): Solve =>
  async (player) => {
    const wanted = find(await player.dom("#svg-grid"));
    await player.clickAt("#svg-grid", wanted);
    // The page draws the point a little beside the pointer; the second click makes up for it.
    const drawn = center((await player.dom("#svg-grid")).first("#blue-circle")!);
    const off = { x: drawn.x - wanted.x, y: drawn.y - wanted.y };
    if (off.x !== 0 || off.y !== 0)
      await player.clickAt("#svg-grid", { x: wanted.x - off.x, y: wanted.y - off.y });
    await player.submit();
  };

/** Of all places on the paper, the one that is best. */
function best(cost: (point: Point) => number): Point {
  let found: Point = { x: 0, y: 0 };
  let least = Number.POSITIVE_INFINITY;
  for (let x = 5; x <= 145; x++)
    for (let y = 5; y <= 125; y++) {
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
  let candidates: Point[] = [];
  for (let x = 5; x < 155; x += 2) for (let y = 5; y < 120; y += 2) candidates.push({ x, y });
  while (candidates.length > 0) {
    const mean = (pick: (point: Point) => number) =>
      candidates.reduce((sum, point) => sum + pick(point), 0) / candidates.length;
    const middle = { x: mean(({ x }) => x), y: mean(({ y }) => y) };
    const distance = (a: Point, b: Point) => Math.hypot(a.x - b.x, a.y - b.y);
    const guess = candidates.toSorted((a, b) => distance(a, middle) - distance(b, middle))[0]!;
    await player.hover("#touch-area", { position: guess });
    const signal = (await player.dom("#display")).text;
    if (signal === "HOT") {
      await player.clickAt("#touch-area", guess);
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
  "bisect-angle": place((svg) => {
    const corner = center(svg.first(".init-blue")!);
    const [a, b] = svg.all(".init-black").map((circle) => towards(corner, center(circle))) as [Point, Point];
    return best((point) => {
      const way = towards(corner, point);
      const [toA, toB] = [angleBetween(way, a), angleBetween(way, b)];
      const isNear = Math.hypot(point.x - corner.x, point.y - corner.y) < 10;
      return isNear || toA + toB > angleBetween(a, b) + 1e-6 ? 10 : Math.abs(toA - toB);
    });
  }),
  "circle-center": place((svg) => center(svg.first("circle")!)),
  "click-shape": async (player) => {
    const description = (await player.query()).replace(/^Click on an? /, "");
    await player.click(matching(shapesIn(await player.dom("#area_svg")), description)[0]!.element);
  },
  "count-shape": async (player) => {
    const description = /How many (.+)s are there/.exec(await player.query())![1]!;
    const count = matching(shapesIn(await player.dom("#area_svg")), description).length;
    await player.click(`role=button[name="${count}"]`);
  },
  "count-sides": async (player) => {
    const corners = cornersIn(decodePng(await player.picture("#c")));
    await player.click(`[data-sides="${corners}"]`);
  },
  "draw-circle": async (player) => {
    const middle = center((await player.dom("#area")).first("#circ")!);
    const radius = 24;
    const at = (part: number) => ({
      x: middle.x + radius * Math.cos(part * 2 * Math.PI),
      y: middle.y + radius * Math.sin(part * 2 * Math.PI),
    });
    await player.clickAt("#area svg", at(0), { action: "press" });
    for (let step = 1; step <= 20; step++) await player.hover("#area svg", { position: at(step / 20) });
    await player.call("click", { action: "release" });
    await player.click("#controls button");
  },
  "draw-line": async (player) => {
    const isVertical = (await player.query()).includes("vertical");
    const { x, y } = center((await player.dom("#area")).first("#circ")!);
    const [from, to] = isVertical
      ? [
          { x, y: 6 },
          { x, y: 104 },
        ]
      : [
          { x: 6, y },
          { x: 144, y },
        ];
    await player.drag("#area svg", { target: "#area svg", ...to }, { position: from });
    await player.click("#controls button");
  },
  "find-midpoint": place((svg) => {
    const [a, b] = svg.all("circle").map(center) as [Point, Point];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  }),
  "grid-coordinate": async (player) => {
    const coordinate = (await player.dom("#query")).first(".bold")!.text;
    await player.click(`[id="${coordinate}"]`);
  },
  "hot-cold": hotAndCold,
  "identify-shape": async (player) => {
    const shape = shapesIn(await player.dom("#area_svg"))[0]!;
    const kind = shape.element.tag === "text" ? shape.names[1] : shape.names[0];
    await player.click(`[data-type="${kind}"]`);
  },
  "right-angle": place((svg) => {
    const corner = center(svg.first("#init-blue")!);
    const side = towards(corner, center(svg.first("#init-black")!));
    const ways = [
      { x: -side.y, y: side.x },
      { x: side.y, y: -side.x },
    ].map((way) => along(corner, way));
    const distance = (point: Point) => Math.hypot(point.x - corner.x, point.y - corner.y);
    return ways.toSorted((a, b) => distance(b) - distance(a))[0]!;
  }),
};
