/** Puzzles, and everything that is a matter of time. */
import type { Element } from "../html.ts";
import { decodePng } from "../picture.ts";
import type { Player, Solve } from "../player.ts";

const lines = [
  [0, 1, 2],
  [3, 4, 5],
  [6, 7, 8],
  [0, 3, 6],
  [1, 4, 7],
  [2, 5, 8],
  [0, 4, 8],
  [2, 4, 6],
];
type Board = ("x" | "o" | "")[];
const hasWon = (board: Board, side: "x" | "o") =>
  lines.some((line) => line.every((cell) => board[cell] === side));
const free = (board: Board) => board.flatMap((cell, index) => (cell === "" ? [index] : []));
const put = (board: Board, cell: number, side: "x" | "o") => board.with(cell, side) as Board;

/** How likely X is to win. The other side plays at random in a little more than half of its moves. */
function chance(board: Board, isX: boolean): number {
  if (hasWon(board, "x")) return 1;
  if (hasWon(board, "o") || free(board).length === 0) return 0;
  const after = free(board).map((cell) => chance(put(board, cell, isX ? "x" : "o"), !isX));
  if (isX) return Math.max(...after);
  const mean = after.reduce((sum, each) => sum + each, 0) / after.length;
  return 0.55 * mean + 0.45 * Math.min(...after);
}

const board = (area: Element): Board =>
  area
    .all("[data-index]")
    .map(({ classes }) => (classes[0] === "mark-x" ? "x" : classes[0] === "mark-o" ? "o" : ""));

/** Checkboxes as the light cells of an example, four by seven. */
async function drawNumber(player: Player): Promise<void> {
  const [number] = await player.quoted();
  const picture = decodePng(await player.picture(`#o${number} img`));
  const inputs = (await player.dom("#checkboxes")).all("input");
  const cell = (column: number, row: number) => {
    let dark = 0;
    const [width, height] = [picture.width / 4, picture.height / 7];
    for (let x = Math.ceil(column * width + width * 0.25); x < (column + 1) * width - width * 0.25; x++)
      for (let y = Math.ceil(row * height + height * 0.25); y < (row + 1) * height - height * 0.25; y++)
        dark += picture.dark(x, y);
    return dark;
  };
  const darkness = inputs.map((_, index) => cell(index % 4, Math.floor(index / 4)));
  const middle = (Math.min(...darkness) + Math.max(...darkness)) / 2;
  for (const [index, input] of inputs.entries()) if (darkness[index]! < middle) await player.click(input);
  await player.submit();
}

export const games: Record<string, Solve> = {
  "ascending-numbers": async (player) => {
    await player.click("#area_svg text:nth-of-type(1)");
    for (let number = 2; number <= 5; number++) await player.click(`#area_svg rect[data-index="${number}"]`);
  },
  "chase-circle": async (player) => {
    while (!(await player.isOver())) await player.hover("#circ").catch(() => {});
  },
  "find-greatest": async (player) => {
    const cards = (await player.dom("#cardholder")).all(".card");
    await player.click(cards.toSorted((a, b) => Number(b.text) - Number(a.text))[0]!);
    await player.click("#submit");
  },
  "generate-number": async (player) => {
    const query = await player.query();
    const limit = Number(/than (\d+)/.exec(query)?.[1]);
    const isWanted = (number: number) =>
      /less/.test(query)
        ? number < limit
        : /greater/.test(query)
          ? number > limit
          : number % 2 === (/odd/.test(query) ? 1 : 0);
    do await player.click("#generate");
    while (!isWanted(Number((await player.dom("#display-number")).text)));
    await player.click("#submit");
  },
  "guess-number": async (player) => {
    let [low, high] = [0, 9];
    while (!(await player.isOver())) {
      const guess = (low + high) >> 1;
      await player.type("#tt", String(guess));
      await player.submit();
      if (await player.isOver()) return;
      const isLower = !(await player.dom("#lower")).classes.includes("hide");
      if (isLower) high = guess - 1;
      else low = guess + 1;
    }
  },
  "highlight-text": async (player) => {
    await player.click("#randomText", { clickCount: 3 });
    await player.submit();
  },
  "highlight-text-2": async (player) => {
    const [, number] = /the (\d)/.exec(await player.query())!;
    await player.click(`#randomText p:nth-of-type(${number})`, { clickCount: 3 });
    await player.submit();
  },
  "hover-shape": async (player) => {
    while (!(await player.isOver())) await player.hover("#highlight").catch(() => {});
  },
  "moving-items": async (player) => {
    while (!(await player.isOver())) {
      const circles = (await player.dom("#area_svg")).all("circle").filter((circle) => {
        const x = circle.number("cx");
        return x > 10 && x < 150;
      });
      if (circles.length === 0) await player.wait(50);
      for (const circle of circles.slice(0, 1)) {
        const [x, y] = [circle.number("cx"), circle.number("cy")];
        await player.clickAt("#area_svg", { x, y: Math.max(1, Math.min(158, y)) }).catch(() => {});
      }
    }
  },
  "number-checkboxes": drawNumber,
  "simon-says": async (player) => {
    const order: string[] = [];
    let pushed = "";
    for (let quietSince = performance.now(); performance.now() - quietSince < 1_200; ) {
      const now = (await player.dom()).first(".push")?.attributes.id ?? "";
      if (now !== "") quietSince = performance.now();
      if (now !== "" && now !== pushed) order.push(now);
      pushed = now;
    }
    for (const id of order) await player.click(`#${id}`);
  },
  "stock-market": async (player) => {
    const limit = Number(/less than \$(\d+\.\d+)/.exec(await player.query())![1]);
    const started = performance.now();
    for (;;) {
      const price = Number((await player.dom("#stock-price")).text.slice(1) || "999");
      // The price moves by up to 1.5 before the click is there.
      const isSafe = price < limit - 1.2 || (performance.now() - started > 7_000 && price <= limit);
      if (isSafe || (await player.isOver())) break;
    }
    await player.click("#buy");
  },
  terminal: async (player) => {
    const ending = (await player.dom("#query")).first(".bold")!.text;
    await player.click("#terminal");
    await player.type(null, "ls", { slowly: true, submit: true });
    const files = (await player.dom("#terminal-contents")).all(".output").at(-1)!.text.split(" ");
    const file = files.find((name) => (ending.startsWith(".") ? name.endsWith(ending) : !name.includes(".")));
    await player.type(null, `rm ${file}`, { slowly: true, submit: true });
  },
  "tic-tac-toe": async (player) => {
    while (!(await player.isOver())) {
      const now = board(await player.dom());
      const moves = free(now);
      const best = moves.toSorted(
        (a, b) => chance(put(now, b, "x"), false) - chance(put(now, a, "x"), false),
      )[0]!;
      await player.click(`#ttt-${best}`);
    }
  },
};
