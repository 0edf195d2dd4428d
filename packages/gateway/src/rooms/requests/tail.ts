import type { Bus, EventHub } from "../../bus/contract.ts";
import type { Clock } from "../../kernel/clock.ts";
import type { Actor } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { Ids } from "../../kernel/ids.ts";
import { PRINCIPAL_CHANGED } from "../../kernel/topics.ts";
import { type Block, rowsIn } from "./blocks.ts";
import type { Filter } from "./filter.ts";
import { requestsEnded } from "./notifications.ts";
import type { Asker, Facet, RecordRow } from "./rows.ts";
import { outcomeOf } from "./stats.ts";
import { viewOf } from "./view.ts";

const WATCHED = "requests-watched";
/** A watcher is forgotten when it is not renewed for this long. */
const WATCHED_MS = 60_000;
const RENEW_SECONDS = 30;
const WATCHERS_MAX = 200;
/** Of one person; the one that was renewed longest ago gives way. */
const WATCHERS_PER_USER_MAX = 5;
/** Requests of one write that a watcher is shown; the rest are counted. */
const SHOWN_MAX = 20;

/** What was written together. */
export interface Written {
  blocks: readonly Block[];
  facets: ReadonlyMap<number, Facet>;
  askers: ReadonlyMap<number, Asker>;
}

interface Watcher {
  streamId: string;
  userId: string;
  filter: Filter;
  untilMs: number;
  /** Rights may have been taken away; they are checked when it is renewed. */
  isPaused?: true;
}

/** Tells those who watch of requests that have just ended, on whichever instance. */
export class Tail {
  readonly #watchers = new Map<string, Watcher>();
  readonly #unsubscribe: (() => void)[];

  constructor(readonly options: { bus: Bus; events: EventHub; clock: Clock; ids: Ids }) {
    this.#unsubscribe = [
      options.bus.subscribe(WATCHED, (message) => this.#watched(JSON.parse(message) as Watcher)),
      options.bus.subscribe(PRINCIPAL_CHANGED, (id) => this.#pause(id)),
    ];
  }

  watch(actor: Actor, filter: Filter, renewed: string | undefined) {
    const { bus, events, clock } = this.options;
    const { userId } = actor;
    this.#forgetOld();
    const known = renewed === undefined ? undefined : this.#watchers.get(renewed);
    if (known && known.userId !== userId) fail("not_found", "There is no such stream of yours");
    const streamId = known?.streamId ?? events.open(actor).sessionId;
    const watcher: Watcher = { streamId, userId, filter, untilMs: clock.now() + WATCHED_MS };
    bus.publish(WATCHED, JSON.stringify(watcher));
    return { stream_id: streamId, renew_after_seconds: RENEW_SECONDS };
  }

  #watched(watcher: Watcher): void {
    this.#forgetOld();
    this.#watchers.delete(watcher.streamId);
    const own = [...this.#watchers.values()].filter(({ userId }) => userId === watcher.userId);
    if (own.length >= WATCHERS_PER_USER_MAX) this.#watchers.delete(own[0]!.streamId);
    if (this.#watchers.size < WATCHERS_MAX) this.#watchers.set(watcher.streamId, watcher);
  }

  #forgetOld(): void {
    const nowMs = this.options.clock.now();
    for (const [streamId, { untilMs }] of this.#watchers)
      if (untilMs < nowMs) this.#watchers.delete(streamId);
  }

  #pause(id: string): void {
    for (const watcher of this.#watchers.values())
      if (watcher.userId === id || watcher.filter.scope.groupId === id) watcher.isPaused = true;
  }

  written(written: Written): void {
    if (this.#watchers.size === 0) return;
    this.#forgetOld();
    const rows = written.blocks.flatMap(rowsIn);
    const groups = groupsOf(rows);
    for (const { streamId, filter, isPaused } of this.#watchers.values()) {
      if (isPaused) continue;
      const matching = groups.filter(([place]) => matches(filter, rows[place!]!, written));
      if (matching.length === 0) continue;
      const shown = matching
        .flatMap((places) => places.slice(-SHOWN_MAX))
        .sort((a, b) => a - b)
        .slice(-SHOWN_MAX)
        .map((place) => viewOf(listed(rows[place]!, written)));
      const skipped = matching.reduce((sum, places) => sum + places.length, -shown.length);
      this.options.events.notify(streamId, requestsEnded, { stream_id: streamId, records: shown, skipped });
    }
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
  }
}

/** Places of rows of the same asker and facet: a filter wants all of them or none, and there are far fewer than rows. */
function groupsOf(rows: readonly RecordRow[]): number[][] {
  const groups = new Map<string, number[]>();
  for (const [place, { askerId, facetId }] of rows.entries()) {
    const key = `${askerId} ${facetId}`;
    const places = groups.get(key);
    if (places) places.push(place);
    else groups.set(key, [place]);
  }
  return [...groups.values()];
}

function matches(
  { scope, ...wanted }: Filter,
  { askerId, facetId }: RecordRow,
  { facets, askers }: Written,
): boolean {
  const facet = facets.get(facetId);
  const asker = askers.get(askerId);
  if (!facet || !asker) return false;
  const isOf = (want: string | null, has: string | null) => want === null || want === has;
  return (
    isOf(scope.userId, asker.userId) &&
    isOf(scope.groupId, asker.groupId) &&
    isOf(scope.keyId, asker.keyId) &&
    isOf(wanted.surface, facet.surface) &&
    isOf(wanted.model, facet.model) &&
    isOf(wanted.backend, facet.backend) &&
    isOf(wanted.code, facet.code) &&
    isOf(wanted.outcome, outcomeOf(facet.status))
  );
}

/** As the list has it, without the names that only the database knows. */
function listed(row: RecordRow, { facets, askers }: Written) {
  const { userId, keyId, groupId, project, keyPrefix } = askers.get(row.askerId)!;
  return {
    ...facets.get(row.facetId)!,
    ...row,
    user_id: userId,
    user_email: null,
    key_id: keyId,
    key_prefix: keyPrefix,
    key_name: null,
    group_id: groupId,
    project,
  };
}
