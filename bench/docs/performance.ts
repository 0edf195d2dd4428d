import { format, type Measured, type Results } from "../lib/figures.ts";
import { cell, type Lookup, markdownTable, times } from "./lookup.ts";

export const CHAT = "chat, 64 connections, CPU per request";
export const PAID = "chat paid in points, 64 connections, CPU per request";
export const EMBEDDINGS = "embeddings, 32 x 1536, CPU per request";
const CHAT_P99 = "chat, 64 connections, p99";
const P50 = "chat, one at a time, p50";
const P99 = "chat, one at a time, p99";
const DELAY = "100 streams, delay p99";
export const tokensOf = (streams: string) => `${streams} streams, CPU per event`;
export const historyOf = (rows: string, how = "") => `chat${how} with ${rows} usage rows, CPU per request`;

const PEERS: readonly [Measured, string][] = [
  ["direct", "no proxy"],
  ["nginx", "nginx"],
  ["bare", "bare Bun proxy"],
  ["parsing", "one that parses"],
  ["portkey", "Portkey's gateway"],
  ["gateway", "this gateway"],
];

const fraction = (ratio: number): string =>
  Number.isFinite(ratio) ? `1/${format(Number((1 / ratio).toPrecision(2)))}` : "";

/** What is measured on all of them. */
export function peersTable(lookup: Lookup): string {
  const figures = lookup.of("chat", "latency", "ttft", "prompt", "embeddings", "streams", "verbatim");
  const head = ["", ...PEERS.map(([, title]) => title), "of bare", "of Portkey's"];
  const rows = figures.map((figure) => {
    const { gateway = Number.NaN, bare = Number.NaN, portkey = Number.NaN } = figure.values;
    const ratios = figure.name.includes("CPU")
      ? [times(gateway / bare), fraction(gateway / portkey)]
      : ["", ""];
    return [figure.name, ...PEERS.map(([peer]) => cell(figure, peer)), ...ratios];
  });
  return markdownTable(head, rows);
}

/** What only a gateway has, or only this one. */
export function ownTable(lookup: Lookup): string {
  const figures = lookup.of("voices", "rpc", "idle", "growth", "soak", "workers");
  const starts = lookup.of("start");
  const rows = figures.map((figure) => [figure.name, cell(figure, "gateway")]);
  const startRows = starts.map((figure) => {
    const others = [...PEERS, ["router", "claude-code-router"] as const]
      .filter(([peer]) => peer !== "gateway" && figure.values[peer] !== undefined)
      .map(([peer, title]) => `${title} ${cell(figure, peer)}`);
    return [figure.name, `${cell(figure, "gateway")}${others.length ? ` (${others.join(", ")})` : ""}`];
  });
  return markdownTable(["this gateway", ""], [...rows, ...startRows]);
}

const NOT_MEASURED = "Not measured in that run.";

/** Messages that become chats: what claude-code-router is for. */
export function translatedTable(lookup: Lookup): string {
  const figures = lookup.of("translated");
  if (figures.length === 0) return NOT_MEASURED;
  const rows = figures.map((figure) => {
    const { gateway = Number.NaN, router = Number.NaN } = figure.values;
    const of = figure.name.includes("CPU") ? fraction(gateway / router) : "";
    return [figure.name, cell(figure, "router"), cell(figure, "gateway"), of];
  });
  return markdownTable(["", "claude-code-router", "this gateway", "of claude-code-router"], rows);
}

const ENTRANTS: readonly [Measured, string][] = [
  ...PEERS.filter(([peer]) => peer !== "direct" && peer !== "gateway"),
  ["gateway", "this gateway, from a quota"],
  ["points", "this gateway, paid in points"],
];

/** The board's columns, by its definitions. */
export function boardTable(lookup: Lookup): string {
  if (lookup.of("board").length === 0) return NOT_MEASURED;
  const added = (name: string, measured: Measured) => {
    const value = lookup.value(name, measured) - lookup.value(name, "direct");
    return Number.isFinite(value) ? format(value) : "";
  };
  const plain = (name: string, measured: Measured) => {
    const value = lookup.value(name, measured);
    return Number.isFinite(value) ? format(value) : "";
  };
  const rows = ENTRANTS.filter(([peer]) =>
    Number.isFinite(lookup.value("board, one connection, p50", peer)),
  ).map(([peer, title]) => [
    title,
    `${added("board, one connection, p50", peer)} / ${added("board, one connection, p99", peer)}`,
    plain("board, 8 connections, CPU per request", peer),
    `${plain("board, requests a second, p99 within 10 ms", peer)} / ${plain("board, requests a second", peer)}`,
    added("board, first token p50", peer),
    plain("board, streams held", peer),
    plain("board, memory", peer),
  ]);
  const head = [
    "",
    "added p50 / p99, µs",
    "CPU a request, µs",
    "requests a second, p99 within 10 ms / any",
    "first token added, ms",
    "streams held",
    "memory, MB",
  ];
  return markdownTable(head, rows);
}

interface Goal {
  goal: string;
  /** What was measured, and whether that is enough. */
  reached(lookup: Lookup): [shown: string, reached: boolean];
}

const ratioGoal = (goal: string, most: number, ratio: (lookup: Lookup) => number): Goal => ({
  goal,
  reached: (lookup) => [times(ratio(lookup)), ratio(lookup) <= most],
});

const ofBareIn = (lookup: Lookup, name: string): number => lookup.value(name) / lookup.value(name, "bare");

const ofBare = (goal: string, most: number, name: string): Goal =>
  ratioGoal(goal, most, (lookup) => ofBareIn(lookup, name));

const STREAMS = ["100", "500", "1,000"];
const IDLE = ["idle event stream", "idle WebSocket"].flatMap((kind) => [kind, `${kind} with Redis`]);

const VERBATIM = ["responses", "messages"];
const EIGHT = "chat, 8 connections, CPU per request";
const PERCENT = 100;

const goals: readonly Goal[] = [
  ofBare("at most 1.35 x the bare proxy's CPU per request, keys and limits on", 1.35, CHAT),
  ratioGoal(
    "paid in points: at most 1.15 x the CPU of a request paid from a quota",
    1.15,
    (lookup) => lookup.value(PAID) / lookup.value(CHAT),
  ),
  ratioGoal(
    "8 connections: at most 1.3 x the CPU of a proxy that parses and rewrites",
    1.3,
    (lookup) => lookup.value(EIGHT) / lookup.value(EIGHT, "parsing"),
  ),
  ofBare("8 connections: at most 2 x the bare proxy's p99", 2, "chat, 8 connections, p99"),
  ratioGoal("Responses and Messages that pass unchanged: at most 1.3 x the bare proxy's CPU", 1.3, (lookup) =>
    Math.max(
      ...VERBATIM.map((voice) => ofBareIn(lookup, `${voice} as it is, 64 connections, CPU per request`)),
    ),
  ),
  ratioGoal("an event of either: at most 1.2 x the bare proxy's CPU", 1.2, (lookup) =>
    Math.max(...VERBATIM.map((voice) => ofBareIn(lookup, `${voice} as it is, 200 streams, CPU per event`))),
  ),
  ofBare(
    "a coding agent's prompt of 372 KB: at most 2.5 x the bare proxy's CPU",
    2.5,
    "chat, 372 KB of an agent, CPU per request",
  ),
  {
    goal: "one chat a second: at most 1 ms added at p50, 5 ms at p99",
    reached: (lookup) => {
      const [p50, p99] = ["p50", "p99"].map((name) => {
        const figure = `chat, one a second, ${name}`;
        return lookup.value(figure) - lookup.value(figure, "direct");
      }) as [number, number];
      return [`${format(p50)} ms, ${format(p99)} ms`, p50 <= 1 && p99 <= 5];
    },
  },
  {
    goal: "at rest: at most 0.3 % of a core, also with four workers",
    reached: (lookup) => {
      const shares = ["one process", "4 workers"].map((name) => lookup.value(`${name} at rest, of a core`));
      return [shares.map((share) => `${format(share)} %`).join(", "), Math.max(...shares) <= 0.3];
    },
  },
  ratioGoal("at most 1.2 x the bare proxy's CPU per streamed event, worst of the three", 1.2, (lookup) =>
    Math.max(
      ...STREAMS.map((count) => lookup.value(tokensOf(count)) / lookup.value(tokensOf(count), "bare")),
    ),
  ),
  ofBare("at most 1.5 x the bare proxy's p99 at 64 connections", 1.5, CHAT_P99),
  ofBare("at most 1.3 x the bare proxy's p99 of one request at a time", 1.3, P99),
  ofBare("at most 2 x the bare proxy's delay of an event at p99, 100 streams", 2, DELAY),
  {
    goal: "at least 20 x less CPU per request than Portkey's gateway",
    reached: (lookup) => {
      const ratio = lookup.value(CHAT, "portkey") / lookup.value(CHAT);
      return [times(ratio), ratio >= 20];
    },
  },
  {
    goal: "less than 0.25 ms added to the p50 of one request at a time",
    reached: (lookup) => {
      const addedUs = lookup.value(P50) - lookup.value(P50, "direct");
      return [`${format(addedUs / 1000)} ms`, addedUs < 250];
    },
  },
  ratioGoal(
    "embeddings for at most 1.8 x nginx's CPU",
    1.8,
    (lookup) => lookup.value(EMBEDDINGS) / lookup.value(EMBEDDINGS, "nginx"),
  ),
  {
    goal: "1,000 streams without a silence over 1 s",
    reached: (lookup) => [
      lookup.shown("1,000 streams, longest silence"),
      lookup.value("1,000 streams, longest silence") < 1_000,
    ],
  },
  {
    goal: "8 KB for an idle event stream or WebSocket, with Redis or without",
    reached: (lookup) => {
      const most = Math.max(...IDLE.map((name) => lookup.value(name)));
      return [`${format(most)} KB at most`, most <= 8];
    },
  },
  {
    goal: "`auth.me` by HTTP for less than 60 µs of CPU",
    reached: (lookup) => [
      lookup.shown("auth.me by HTTP, CPU per call"),
      lookup.value("auth.me by HTTP, CPU per call") < 60,
    ],
  },
  {
    goal: "the built program healthy within 150 ms of its start, under 80 MB at rest",
    reached: (lookup) => [
      `${lookup.shown("start to healthy")}, ${lookup.shown("memory at rest")}`,
      lookup.value("start to healthy") <= 150 && lookup.value("memory at rest") < 80,
    ],
  },
  {
    goal: "a 60 s soak, two thirds of its streams left by their clients, ends within 10 % of its memory after 10 s",
    reached: (lookup) => {
      const percent = lookup.value("soak of 60 s, growth after 10 s");
      return [`${percent > 0 ? "+" : ""}${percent.toFixed(1)} %`, percent <= 10];
    },
  },
  {
    goal: "a million usage rows make a request cost at most 5 % more",
    reached: (lookup) => {
      const percents = ["", " paid in points"].map(
        (how) =>
          (lookup.value(historyOf("1,000,000", how)) / lookup.value(historyOf("0", how)) - 1) * PERCENT,
      );
      return [
        percents.map((percent) => `${percent.toFixed(1)} %`).join(", in points "),
        percents.every((percent) => percent <= 5),
      ];
    },
  },
];

export const goalsTable = (lookup: Lookup): string =>
  markdownTable(
    ["Goal", "Measured", ""],
    goals.map(({ goal, reached }) => {
      const [shown, isReached] = reached(lookup);
      if (shown === "" || shown.includes("NaN")) return [goal, "not measured in that run", ""];
      return [goal, shown, isReached ? "reached" : "**missed**"];
    }),
  );

export function circumstances({ takenAt, machine, missing, figures }: Results): string {
  const { cpu, cores, bun, loadBefore, loadAfter } = machine;
  const noises = figures
    .filter(({ name }) => name.includes("CPU"))
    .flatMap(({ values: { bare, bareAgain } }) =>
      bare && bareAgain ? [Math.abs(bareAgain / bare - 1)] : [],
    );
  const noise = `${(Math.max(0, ...noises) * 100).toFixed(0)} %`;
  const left = missing.length > 0 ? ` Left out: ${missing.join("; ")}.` : "";
  return `Taken on ${takenAt.slice(0, 10)} on a machine with ${cores} ${process.arch} cores (${cpu}), Bun ${bun}; its load was ${loadBefore.toFixed(1)} before and ${loadAfter.toFixed(1)} at the end of the run. Medians; where processor time is compared, two measurements of the bare proxy differed by ${noise} at most. Keys of several accounts take turns.${left}`;
}
