import { format, type Measured } from "../lib/figures.ts";
import { type Lookup, markdownTable } from "./lookup.ts";

/** Of a core that may be planned with. */
const USE = 0.6;
const TOKENS = 100;
const MINUTES_A_MONTH = 60 * 24 * 30;
const ROW_KB = 0.4;
const PAID_ROW_KB = 1.1;
const REQUEST = "request, shared";
const PAID = "request paid in points, shared";
const TOKEN = "streamed token, shared";

export function costsTable(lookup: Lookup): string {
  const names = lookup
    .of("sharing")
    .filter(({ unit }) => unit === "µs")
    .map(({ name }) => name);
  const parts: readonly Measured[] = ["gateway", "postgres", "redis"];
  return markdownTable(
    ["Processor time", "instance", "Postgres", "Redis"],
    names.map((name) => [name, ...parts.map((part) => lookup.shown(name, part))]),
  );
}

export function costsNotes(lookup: Lookup): string {
  const more = (name: string) =>
    `${Math.round((lookup.value(`${name}, shared`) / lookup.value(`${name}, alone`) - 1) * 100)} %`;
  const messages = (name: string) => format(lookup.value(`${name}, messages`, "redis"));
  const commits = (name: string) => format(lookup.value(`${name}, commits`, "postgres"));
  return [
    `- Sharing costs an instance ${more("request")} on an unlimited tier and ${more("request paid in points")} with holds. What one turn of the event loop asks of the counter is one message: ${messages("request")} messages to Redis a request, ${messages("request paid in points")} with holds.`,
    `- Postgres sees ${commits("request")} to ${commits("request paid in points")} commits a request: the journal's writer settles up to 4,096 rows in one transaction. A streamed token costs Postgres nothing; what is shown is the request's, spread over its 60 tokens.`,
    `- Idle connections: an event stream ${lookup.shown("idle event stream with Redis")}, a WebSocket ${lookup.shown("idle WebSocket with Redis")}, a kept-alive HTTP connection ${lookup.shown("idle HTTP connection with Redis")}. Ten thousand event streams are ${Math.round((lookup.value("idle event stream with Redis") * 10_000) / 1024)} MB.`,
    `- A key revoked on one instance was refused on another after ${lookup.shown("key revoked on one, refused on another, median")} (median of 50; ${lookup.shown("key revoked on one, refused on another, longest")} at most).`,
  ].join("\n");
}

const count = (value: number): string =>
  Math.ceil(value).toLocaleString("en", { maximumSignificantDigits: 2 });
const cores = (value: number): string =>
  value < 1
    ? `${format(Number(value.toPrecision(2)))} of a core`
    : `${format(Number(value.toPrecision(2)))} cores`;

/** Instances and servers for so many requests a minute. */
export function capacityTable(lookup: Lookup): string {
  const minutes = [1e3, 1e5, 1e7];
  const requestUs = lookup.value(PAID);
  const streamUs = lookup.value(TOKEN) * TOKENS;
  const coresFor = (us: number, perMinute: number) => (us * perMinute) / 60e6;
  const instances = (us: number) =>
    minutes.map((perMinute) => {
      const needed = coresFor(us, perMinute);
      return needed < USE ? `1 (${(needed * 100).toPrecision(2)} % of its core)` : count(needed / USE);
    });
  const server = (part: Measured) =>
    minutes.map((perMinute) => cores(coresFor(lookup.value(PAID, part), perMinute)));
  const gigabytes = (kb: number, perMinute: number) => {
    const gb = (perMinute * MINUTES_A_MONTH * kb) / 1e6;
    return gb < 1_000 ? `${Math.round(gb)} GB` : `${format(Number((gb / 1_000).toPrecision(2)))} TB`;
  };
  return markdownTable(
    ["Requests a minute", "10³", "10⁵", "10⁷"],
    [
      ["instances, no stream", ...instances(requestUs)],
      [`instances, ${TOKENS} tokens each`, ...instances(streamUs)],
      ["Postgres", ...server("postgres")],
      ["Redis", ...server("redis")],
      [
        "rows a month",
        ...minutes.map((each) => `${gigabytes(ROW_KB, each)}, in points ${gigabytes(PAID_ROW_KB, each)}`),
      ],
    ],
  );
}

/** How much one of each can do. */
export function limitsTable(lookup: Lookup): string {
  const perSecond = (us: number, use: number) => count((use * 1e6) / us);
  return markdownTable(
    ["One of them does", "a second"],
    [
      [
        `instance at ${USE * 100} % of its core`,
        `${perSecond(lookup.value(PAID), USE)} requests paid in points, or ${perSecond(lookup.value(REQUEST), USE)} others, or ${perSecond(lookup.value(TOKEN), USE)} streamed tokens`,
      ],
      [
        "Redis' one thread, all of it",
        `${perSecond(lookup.value(PAID, "redis"), 1)} requests paid in points, or ${perSecond(lookup.value(REQUEST, "redis"), 1)} others`,
      ],
      [
        "a core of Postgres, all of it",
        `${perSecond(lookup.value(PAID, "postgres"), 1)} requests paid in points, or ${perSecond(lookup.value(REQUEST, "postgres"), 1)} others`,
      ],
    ],
  );
}
