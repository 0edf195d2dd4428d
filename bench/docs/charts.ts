import { format, type Measured } from "../lib/figures.ts";
import type { Lookup } from "./lookup.ts";
import { CHAT, EMBEDDINGS, historyOf, tokensOf } from "./performance.ts";

interface Bar {
  label: string;
  value: number;
  /** Which of the colours it has. */
  color: number;
}
interface Panel {
  title: string;
  unit: string;
  bars: Bar[];
}

const WIDTH = 720;
const LABEL_WIDTH = 150;
const VALUE_WIDTH = 90;
const BAR_HEIGHT = 16;
const BAR_STEP = 22;
const TITLE_HEIGHT = 34;

/** Panels below each other, each with a scale of its own that begins at 0. Readable on light and dark pages. */
function chart(title: string, panels: readonly Panel[]): string {
  const parts: string[] = [];
  let y = 0;
  for (const { title: heading, unit, bars } of panels) {
    parts.push(`<text class="t" x="0" y="${y + 22}">${heading}</text>`);
    y += TITLE_HEIGHT;
    const most = Math.max(...bars.map(({ value }) => value));
    for (const { label, value, color } of bars) {
      const width = Math.max(1, (value / most) * (WIDTH - LABEL_WIDTH - VALUE_WIDTH));
      const middle = y + BAR_HEIGHT - 4;
      parts.push(
        `<text x="${LABEL_WIDTH - 8}" y="${middle}" text-anchor="end">${label}</text>`,
        `<rect class="c${color}" x="${LABEL_WIDTH}" y="${y}" width="${width.toFixed(1)}" height="${BAR_HEIGHT}" rx="2"/>`,
        `<text x="${(LABEL_WIDTH + width + 6).toFixed(1)}" y="${middle}">${format(value)} ${unit}</text>`,
      );
      y += BAR_STEP;
    }
    y += 8;
  }
  const style =
    "text{font:13px system-ui,sans-serif;fill:#333}.t{font-weight:600}.c0{fill:#8a8f98}.c1{fill:#b5651d}.c2{fill:#2563eb}" +
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.c2{fill:#60a5fa}}";
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${y}" width="${WIDTH}" height="${y}" role="img" aria-label="${title}"><title>${title}</title><style>${style}</style>${parts.join("")}</svg>\n`;
}

const PEERS: readonly [Measured, string, number][] = [
  ["nginx", "nginx", 0],
  ["bare", "bare Bun proxy", 0],
  ["portkey", "Portkey's gateway", 1],
  ["gateway", "this gateway", 2],
];

const peersPanel = (lookup: Lookup, name: string, title: string): Panel => ({
  title,
  unit: "µs",
  bars: PEERS.map(([peer, label, color]) => ({ label, value: lookup.value(name, peer), color })).filter(
    ({ value }) => Number.isFinite(value),
  ),
});

export const cpuChart = (lookup: Lookup): string =>
  chart("Processor time by peer", [
    peersPanel(lookup, CHAT, "Chat request"),
    peersPanel(lookup, tokensOf("1,000"), "Streamed event, 1,000 streams at once"),
    peersPanel(lookup, EMBEDDINGS, "Embeddings request, 32 x 1536 numbers"),
  ]);

const HISTORIES = ["0", "100,000", "1,000,000"];

const growthPanel = (lookup: Lookup, how: string, title: string): Panel => ({
  title,
  unit: "µs",
  bars: HISTORIES.map((rows) => ({
    label: `${rows} rows`,
    value: lookup.value(historyOf(rows, how)),
    color: 2,
  })),
});

export const growthChart = (lookup: Lookup): string =>
  chart("Processor time of a chat request by the usage rows in the database", [
    growthPanel(lookup, "", "Chat request"),
    growthPanel(lookup, " paid in points", "Chat request, paid in points"),
  ]);
