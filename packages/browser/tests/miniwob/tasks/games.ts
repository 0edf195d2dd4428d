/** Puzzles, and everything that is a matter of time. */
import { decodePng, type Picture } from "../picture.ts";
import type { Player, Solve } from "../player.ts";
import type { Box, Part } from "../screen.ts";

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

/** Where a side would complete a line. */
const completing = (board: Board, side: "x" | "o") =>
  free(board).find((cell) => hasWon(put(board, cell, side), side));

/** How likely X is to win. The other side completes or blocks a line in 45 of 100 moves; the others are random. */
function chance(board: Board, isX: boolean): number {
  if (hasWon(board, "x")) return 1;
  if (hasWon(board, "o") || free(board).length === 0) return 0;
  const after = free(board).map((cell) => chance(put(board, cell, isX ? "x" : "o"), !isX));
  if (isX) return Math.max(...after);
  const mean = after.reduce((sum, each) => sum + each, 0) / after.length;
  const answer = completing(board, "o") ?? completing(board, "x");
  return answer === undefined ? mean : 0.55 * mean + 0.45 * after[free(board).indexOf(answer)]!;
}

/** Where the marks of a board are said by texts or hints. */
const board = (cells: Part[]): Board =>
  cells.map((cell) => {
    const mark = `${cell.text} ${[cell, ...cell.inside].map(({ hint }) => hint).join(" ")}`;
    return /mark-x|\bx\b/i.test(mark) ? "x" : /mark-o|\bo\b/i.test(mark) ? "o" : "";
  });

/** Where a picture is anything but its ground. */
function drawnBox({ width, height, dark }: Picture): Box {
  const ground = dark(0, 0);
  const isDrawn = (x: number, y: number) => Math.abs(dark(x, y) - ground) > 30;
  const columns = Array.from({ length: width }, (_, x) => x);
  const rows = Array.from({ length: height }, (_, y) => y);
  const xs = columns.filter((x) => rows.some((y) => isDrawn(x, y)));
  const ys = rows.filter((y) => xs.some((x) => isDrawn(x, y)));
  return { x: xs[0]!, y: ys[0]!, width: xs.at(-1)! - xs[0]! + 1, height: ys.at(-1)! - ys[0]! + 1 };
}

/** Checkboxes as the light cells of an example, four by seven. */
async function drawNumber(player: Player): Promise<void> {
  const screen = await player.look();
  const picture = decodePng(await player.picture(screen.area.hinted(/^img/)[0]!));
  const inputs = screen.all("checkbox");
  const box = drawnBox(picture);
  const cell = (column: number, row: number) =>
    picture.dark(
      Math.floor(box.x + ((column + 0.5) * box.width) / 4),
      Math.floor(box.y + ((row + 0.5) * box.height) / 7),
    );
  const darkness = inputs.map((_, index) => cell(index % 4, Math.floor(index / 4)));
  const middle = (Math.min(...darkness) + Math.max(...darkness)) / 2;
  for (const [index, input] of inputs.entries()) if (darkness[index]! < middle) await player.click(input);
  await player.submit();
}

const numbers = (parts: Part[]) => parts.filter(({ ref, text }) => ref !== "" && /^-?\d+$/.test(text));

export const games: Record<string, Solve> = {
  "ascending-numbers": async (player) => {
    const { area } = await player.look();
    const found = numbers(area.inside).filter(({ parts }) => parts.length > 0);
    for (const number of found.toSorted((a, b) => Number(a.text) - Number(b.text)))
      await player.at(number.middle);
  },
  "chase-circle": async (player) => {
    for (let screen = await player.look(); !screen.isOver; screen = await player.look()) {
      const circle = screen.area.hinted(/^circle/)[0]!;
      for (let i = 0; i < 20; i++) await player.hover(circle).catch(() => {});
    }
  },
  "find-greatest": async (player) => {
    const { area } = await player.look();
    await player.click(numbers(area.inside).toSorted((a, b) => Number(b.text) - Number(a.text))[0]!);
    await player.submit();
  },
  "generate-number": async (player) => {
    const screen = await player.look();
    const query = screen.query.text;
    const limit = Number(/than (\d+)/.exec(query)?.[1]);
    const isWanted = (number: number) =>
      /less/.test(query)
        ? number < limit
        : /greater/.test(query)
          ? number > limit
          : Math.abs(number % 2) === (/odd/.test(query) ? 1 : 0);
    for (let shown = Number.NaN; Number.isNaN(shown) || !isWanted(shown); ) {
      await player.click(screen.one("button", "Generate"));
      shown = Number(numbers((await player.look()).area.inside)[0]?.text ?? "NaN");
    }
    await player.submit();
  },
  "guess-number": async (player) => {
    let [low, high] = [0, 9];
    while (low <= high) {
      const guess = (low + high) >> 1;
      const screen = await player.look();
      await player.type(screen.one("spinbutton"), String(guess));
      await player.click(screen.one("button", "Submit"));
      const after = await player.look();
      if (after.isOver) return;
      if (/lower/i.test(after.area.text)) high = guess - 1;
      else low = guess + 1;
    }
  },
  "highlight-text": async (player) => {
    const { area } = await player.look();
    const text = area.inside.findLast(({ ref, role }) => ref !== "" && role !== "button")!;
    await player.click(text, { clickCount: 3 });
    await player.submit();
  },
  "highlight-text-2": async (player) => {
    const screen = await player.look();
    const [, number] = /the (\d)/.exec(screen.query.text)!;
    await player.click(screen.all("paragraph")[Number(number) - 1]!, { clickCount: 3 });
    await player.submit();
  },
  "hover-shape": async (player) => {
    for (let screen = await player.look(); !screen.isOver; screen = await player.look())
      await player.hover(screen.area.hinted(/^rect.*rgb\((?!0, 0, 0\))/)[0]!).catch(() => {});
  },
  "moving-items": async (player) => {
    for (let screen = await player.look(); !screen.isOver; screen = await player.look()) {
      const inside = ({ middle }: Part) => middle.x > 12 && middle.x < 150;
      const circle = screen.area.hinted(/^circle/).find(inside);
      if (!circle) continue;
      const { x, y } = circle.middle;
      await player.at({ x, y: Math.max(53, Math.min(209, y)) }).catch(() => {});
    }
  },
  "number-checkboxes": drawNumber,
  "simon-says": async (player) => {
    const order: Part[] = [];
    const resting = (await player.look()).all("button");
    let pushed = "";
    for (let quietSince = performance.now(); performance.now() - quietSince < 1_200; ) {
      const buttons = (await player.look()).all("button");
      // The colours are those of a button that is not pushed, once all have been seen.
      const now = buttons.find(({ colour }, index) => isBright(colour, resting[index]!.colour))?.ref ?? "";
      if (now !== "") quietSince = performance.now();
      if (now !== "" && now !== pushed) order.push(buttons.find(({ ref }) => ref === now)!);
      pushed = now;
    }
    for (const button of order) await player.click(button);
  },
  "stock-market": async (player) => {
    const screen = await player.look();
    const limit = Number(/less than \$(\d+\.\d+)/.exec(screen.query.text)![1]);
    const started = performance.now();
    for (;;) {
      const now = await player.look();
      const price = Number(/price: \$(\d+\.\d+)/.exec(now.area.text)?.[1] ?? "999");
      // The price moves by up to 1.5 before the click is there.
      const isSafe = price < limit - 1.2 || (performance.now() - started > 7_000 && price <= limit);
      if (isSafe || now.isOver) break;
    }
    await player.click(screen.one("button", "Buy"));
  },
  terminal: async (player) => {
    const screen = await player.look();
    const [, ending] = /extension (\.\w+)/.exec(screen.query.text) ?? [];
    await player.click(screen.said("terminal")!);
    await player.type(null, "ls", { slowly: true, submit: true });
    const listed = await player.until(({ area }) => /user\$ ls (.+?) user\$/.exec(area.text)?.[1]);
    const files = listed.split(/\s+/);
    const file = files.find((name) => (ending ? name.endsWith(ending) : !name.includes(".")));
    await player.type(null, `rm ${file}`, { slowly: true, submit: true });
  },
  "tic-tac-toe": async (player) => {
    for (;;) {
      const screen = await player.look();
      if (screen.isOver) return;
      const cells = screen.area.hinted(/#ttt-\d/);
      const now = board(cells);
      const best = free(now).toSorted(
        (a, b) => chance(put(now, b, "x"), false) - chance(put(now, a, "x"), false),
      )[0];
      if (best === undefined) return;
      await player.click(cells[best]!);
    }
  },
};

/** Pushed buttons are drawn brighter than they rest. */
function isBright(colour: string, resting: string): boolean {
  const sum = (text: string) => (text.match(/\d+/g) ?? []).reduce((total, part) => total + Number(part), 0);
  return sum(colour) > sum(resting) + 30;
}
