import { isCharged } from "../../kernel/request-row.ts";
import { KeySums } from "./key-spend.ts";
import {
  BUCKET_COUNT,
  bucketOf,
  DAY_MS,
  GRAINS_MS,
  MINUTE_MS,
  MonthNames,
  type RequestRow,
  WHOLE_USER,
} from "./rows.ts";
import { Sums } from "./sums.ts";

/** Stands for null in the keys of sums, and for everyone. */
export const NO_ID = "00000000-0000-0000-0000-000000000000";

const cacheOf = ({ cachedTokens, cacheWriteTokens, cacheSavedNanoUsd }: RequestRow): number[] => [
  cachedTokens ?? 0,
  cacheWriteTokens ?? 0,
  cacheSavedNanoUsd ?? 0,
];

/** Rows that count in the same places, added up. */
class Tally {
  requests = 0;
  promptTokens = 0;
  completionTokens = 0;
  costNanoUsd = 0;
  unpriced = 0;
  /** In the order of `CACHE_COLUMNS`. */
  readonly cache = [0, 0, 0];
  lastMs = 0;

  constructor(
    /** One of them. */
    readonly row: RequestRow,
  ) {}

  add(row: RequestRow): void {
    this.requests++;
    this.promptTokens += row.promptTokens;
    this.completionTokens += row.completionTokens;
    this.costNanoUsd += row.costNanoUsd ?? 0;
    if (row.unpriced) this.unpriced++;
    cacheOf(row).forEach((figure, i) => {
      this.cache[i]! += figure;
    });
    if (row.atMs > this.lastMs) this.lastMs = row.atMs;
  }

  get figures(): number[] {
    return [this.promptTokens, this.completionTokens, this.costNanoUsd, this.unpriced];
  }
}

/** The same with how long they took. */
class TimedTally extends Tally {
  readonly firstToken: number[] = new Array(BUCKET_COUNT).fill(0);
  readonly duration: number[] = new Array(BUCKET_COUNT).fill(0);

  override add(row: RequestRow): void {
    super.add(row);
    if (row.firstTokenMs !== null) this.firstToken[bucketOf(row.firstTokenMs)]!++;
    this.duration[bucketOf(row.durationMs)]!++;
  }
}

const startOf = (ms: number, grainMs: number): number => ms - (ms % grainMs);
const isWithin = (a: RequestRow, b: RequestRow, grainMs: number): boolean =>
  startOf(a.atMs, grainMs) === startOf(b.atMs, grainMs);

const isOfKind = (a: RequestRow, b: RequestRow): boolean =>
  a.surface === b.surface &&
  a.model === b.model &&
  a.backend === b.backend &&
  a.channel === b.channel &&
  a.status === b.status &&
  a.code === b.code;

const isOfAsker = (a: RequestRow, b: RequestRow): boolean =>
  a.userId === b.userId &&
  a.keyId === b.keyId &&
  a.project === b.project &&
  a.groupId === b.groupId &&
  a.channel === b.channel &&
  (a.status === null) === (b.status === null) &&
  (a.status ?? 0) >= 400 === (b.status ?? 0) >= 400 &&
  (a.points === null) === (b.points === null);

/** Tallies by a name and by what else tells rows apart: of each name there are few. */
class Tallies<T extends Tally> {
  readonly #byName = new Map<string | null, T[]>();

  constructor(
    readonly make: (row: RequestRow) => T,
    readonly isSame: (a: RequestRow, b: RequestRow) => boolean,
  ) {}

  add(name: string | null, row: RequestRow): void {
    let tallies = this.#byName.get(name);
    if (!tallies) {
      tallies = [];
      this.#byName.set(name, tallies);
    }
    let tally = tallies.find((known) => this.isSame(known.row, row));
    if (!tally) {
      tally = this.make(row);
      tallies.push(tally);
    }
    tally.add(row);
  }

  *all(): Generator<T> {
    for (const tallies of this.#byName.values()) yield* tallies;
  }
}

const timed = (row: RequestRow) => new TimedTally(row);

/** What a batch of rows adds to the sums. Rows are grouped first: a batch has many of one key, which differ little. */
export class Batch {
  readonly months = new Sums();
  /** Everyone's, and each person's. */
  readonly kinds = new Sums();
  readonly askerDays = new Sums();
  readonly refDays = new Sums();
  readonly keys = new KeySums();
  readonly #monthNames = new MonthNames();

  constructor(rows: readonly RequestRow[]) {
    const everyone = new Tallies(timed, (a, b) => isOfKind(a, b) && isWithin(a, b, MINUTE_MS));
    const people = new Tallies(timed, (a, b) => isOfKind(a, b) && isWithin(a, b, DAY_MS));
    const askers = new Tallies(
      (row) => new Tally(row),
      (a, b) => isOfAsker(a, b) && isWithin(a, b, DAY_MS),
    );
    for (const row of rows) {
      everyone.add(row.model, row);
      if (row.userId !== null) people.add(row.userId, row);
      askers.add(row.attribution, row);
      if (row.refId !== null && isCharged(row))
        this.refDays.add(
          [row.refId, startOf(row.atMs, DAY_MS), row.model, row.channel],
          [1, row.promptTokens, row.completionTokens, row.costNanoUsd ?? 0, ...cacheOf(row)],
        );
    }
    for (const tally of everyone.all()) for (const grainMs of GRAINS_MS) this.#addKind(tally, grainMs, NO_ID);
    for (const tally of people.all()) this.#addKind(tally, DAY_MS, tally.row.userId!);
    for (const tally of askers.all()) this.#addAsker(tally);
  }

  #addKind(
    { row, requests, figures, firstToken, duration, cache }: TimedTally,
    grainMs: number,
    whose: string,
  ): void {
    this.kinds.add(
      [
        grainMs,
        whose,
        startOf(row.atMs, grainMs),
        row.surface ?? "",
        row.model ?? "",
        row.backend ?? "",
        row.channel ?? "",
        row.status ?? 0,
        row.code ?? "",
      ],
      [requests, ...figures, ...firstToken, ...duration, ...cache],
    );
  }

  #addAsker(tally: Tally): void {
    const { row, requests } = tally;
    const { userId, attribution, keyId, project, groupId, channel, status } = row;
    this.askerDays.add(
      [
        startOf(row.atMs, DAY_MS),
        userId ?? NO_ID,
        attribution ?? "",
        keyId ?? NO_ID,
        project ?? "",
        groupId ?? NO_ID,
        channel ?? "",
      ],
      [
        requests,
        status === null ? requests : 0,
        status !== null && status >= 400 ? requests : 0,
        ...tally.figures,
        ...tally.cache,
      ],
    );
    if (isCharged(row)) this.#charge(tally, row.userId);
  }

  #charge(tally: Tally, userId: string): void {
    const { row, requests, promptTokens, completionTokens, costNanoUsd, lastMs } = tally;
    const { project, keyId } = row;
    const tokens = promptTokens + completionTokens;
    const month = this.#monthNames.at(row.atMs);
    const ofQuota = row.points === null ? 1 : 0;
    // Only what is done with a key has a project.
    const ofKeys = project === null ? 0 : ofQuota;
    const sums = [
      requests,
      tokens,
      costNanoUsd,
      ofQuota * tokens,
      ofQuota * costNanoUsd,
      ofKeys * tokens,
      ofKeys * costNanoUsd,
    ];
    this.months.add([userId, month, WHOLE_USER], sums);
    if (project !== null) this.months.add([userId, month, project], sums);
    if (keyId !== null) this.keys.add(keyId, { month, nanoUsd: costNanoUsd, requests, lastUsedMs: lastMs });
  }
}
