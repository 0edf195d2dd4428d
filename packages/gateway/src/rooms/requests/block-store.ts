import {
  type Database,
  insertRows,
  type Queryable,
  selectIn,
  type Transaction,
} from "../../storage/contract.ts";
import { type Block, blockIdsFor, endOfBucket, type IdRange, rowsIn } from "./blocks.ts";
import { type Filter, Sql } from "./filter.ts";
import type { Facet, Facts, StoredRow } from "./rows.ts";

/** Blocks that are read at once: few enough that reading them takes a millisecond. */
const BLOCKS_AT_ONCE = 8;
/** Periods that one statement looks through. */
const RANGES_AT_ONCE = 16;
/** With at most so many numbers to look for, the database leaves out blocks that have none of them. */
const SOUGHT_MAX = 8;

/** A request with what its numbers stand for. */
export interface ListedRecord extends Omit<Facet, "id"> {
  id: string;
  user_id: string | null;
  user_email: string | null;
  key_id: string | null;
  key_prefix: string | null;
  key_name: string | null;
  group_id: string | null;
  project: string | null;
  facts: Facts;
}

type AskerRow = Omit<ListedRecord, keyof Facet | "facts"> & { id: number };

export async function insertBlocks(tx: Transaction, blocks: readonly Block[]): Promise<void> {
  const rows = blocks.map(({ firstId, requests, records }) => [firstId, requests, records]);
  await insertRows(
    tx,
    "request_blocks (first_id, requests, records)",
    rows,
    "ON CONFLICT (first_id) DO NOTHING",
  );
}

/** How many requests the newest blocks below this id hold, newest first. */
export const newestBlocks = (
  on: Queryable,
  belowId: string,
  blocksMax: number,
): Promise<{ first_id: string; requests: number }[]> =>
  on.all(
    "SELECT first_id, requests FROM request_blocks WHERE first_id < $1 ORDER BY first_id DESC LIMIT $2",
    [belowId, blocksMax],
  );

/** What a list looks for; null: everything. */
interface Sought {
  facets: ReadonlySet<string> | null;
  askers: ReadonlySet<string> | null;
}

/** SQL of the blocks that request records lie in. */
export class BlockStore {
  constructor(readonly db: Database) {}

  /** Requests of these periods, newest first. The periods do not overlap, and the newest is the first. */
  async list(filter: Filter, ranges: readonly IdRange[], limit: number): Promise<ListedRecord[]> {
    const sought: Sought = {
      facets: await this.#numbers((sql) => sql.facetsOf(filter)),
      askers: await this.#numbers((sql) => sql.askersOf(filter.scope)),
    };
    const found: StoredRow[] = [];
    for (let i = 0; i < ranges.length && found.length < limit; i += RANGES_AT_ONCE)
      found.push(...(await this.#find(sought, ranges.slice(i, i + RANGES_AT_ONCE), limit - found.length)));
    return this.#named(found);
  }

  async find(id: string): Promise<ListedRecord | null> {
    const { fromId, belowId } = blockIdsFor({ fromId: id, belowId: id });
    const blocks = await this.db.all<Pick<Block, "records">>(
      "SELECT records FROM request_blocks WHERE first_id >= $1 AND first_id < $2",
      [fromId, belowId],
    );
    const row = blocks.flatMap(rowsIn).find(([rowId]) => rowId === id);
    return row ? ((await this.#named([row]))[0] ?? null) : null;
  }

  /** Deletes the oldest blocks up to this id, with about so many requests: returns how many they held. */
  async deleteUpTo(id: string, requestsMax: number): Promise<number> {
    const oldest = await this.db.all<{ first_id: string; requests: number }>(
      "SELECT first_id, requests FROM request_blocks WHERE first_id <= $1 ORDER BY first_id LIMIT $2",
      [id, requestsMax],
    );
    let removed = 0;
    let last: string | null = null;
    for (const { first_id, requests } of oldest) {
      if (removed >= requestsMax) break;
      removed += requests;
      last = first_id;
    }
    if (last !== null) await this.db.run("DELETE FROM request_blocks WHERE first_id <= $1", [last]);
    return removed;
  }

  async #numbers(select: (sql: Sql) => string | null): Promise<ReadonlySet<string> | null> {
    const sql = new Sql();
    const text = select(sql);
    if (text === null) return null;
    const rows = await this.db.all<{ id: number }>(text, sql.params);
    return new Set(rows.map(({ id }) => `${id}`));
  }

  /**
   * Blocks are read newest first until the page is full. Those of the same moment are in no order, so what the last
   * block read has in common with the next one is not final yet.
   */
  async #find(sought: Sought, ranges: readonly IdRange[], limit: number): Promise<StoredRow[]> {
    const isWanted = ([id, askerId, facetId]: StoredRow) =>
      (sought.askers?.has(askerId) ?? true) &&
      (sought.facets?.has(facetId) ?? true) &&
      ranges.some(({ fromId, belowId }) => id >= fromId && id < belowId);
    const found: StoredRow[] = [];
    let belowId: string | null = null;
    for (;;) {
      const blocks: (Pick<Block, "records"> & { first_id: string })[] = await this.#blocks(
        sought,
        ranges,
        belowId,
      );
      for (const block of blocks) for (const row of rowsIn(block)) if (isWanted(row)) found.push(row);
      found.sort(([a], [b]) => (a < b ? 1 : -1));
      if (blocks.length < BLOCKS_AT_ONCE) return found.slice(0, limit);
      belowId = blocks.at(-1)!.first_id;
      const last = found[limit - 1];
      if (last && last[0] >= endOfBucket(belowId)) return found.slice(0, limit);
    }
  }

  #blocks({ facets, askers }: Sought, ranges: readonly IdRange[], belowId: string | null) {
    const sql = new Sql();
    const common = new Sql(sql.params);
    for (const numbers of [facets, askers]) {
      if (!numbers || numbers.size > SOUGHT_MAX) continue;
      const has = [...numbers].map((number) => this.#contains(number, common));
      common.add(has.length > 0 ? `(${has.join(" OR ")})` : "1 = 0");
    }
    if (belowId !== null) common.add(`first_id < ${common.value(belowId)}`);
    const parts = ranges.map((range) => {
      const part = new Sql(sql.params);
      const ids = blockIdsFor(range);
      part.add(`first_id >= ${part.value(ids.fromId)}`).add(`first_id < ${part.value(ids.belowId)}`);
      for (const condition of common.conditions) part.add(condition);
      return `SELECT first_id, records FROM request_blocks ${part.where}`;
    });
    return this.db.all<Pick<Block, "records"> & { first_id: string }>(
      `SELECT * FROM (${parts.join(" UNION ALL ")}) AS blocks ORDER BY first_id DESC LIMIT ${BLOCKS_AT_ONCE}`,
      sql.params,
    );
  }

  /** Whether the text stands in a block: it may do so by chance, too. */
  #contains(text: string, sql: Sql): string {
    const position = this.db.dialect === "sqlite" ? "INSTR" : "STRPOS";
    return `${position}(records, ${sql.value(text)}) > 0`;
  }

  async #named(rows: readonly StoredRow[]): Promise<ListedRecord[]> {
    const facets = await this.#byId<Facet>(
      (list) => `SELECT id, surface, model, backend, status, code FROM request_facets WHERE id IN ${list}`,
      rows.map(([, , facetId]) => Number(facetId)),
    );
    const askers = await this.#byId<AskerRow>(
      (
        list,
      ) => `SELECT a.id, a.user_id, u.email AS user_email, a.key_id, a.key_prefix, k.name AS key_name, a.group_id,
          a.project
        FROM request_askers a LEFT JOIN users u ON u.id = a.user_id LEFT JOIN api_keys k ON k.id = a.key_id
        WHERE a.id IN ${list}`,
      rows.map(([, askerId]) => Number(askerId)),
    );
    return rows.flatMap(([id, askerId, facetId, ...facts]) => {
      const [facet, asker] = [facets.get(Number(facetId)), askers.get(Number(askerId))];
      return facet && asker ? [{ ...facet, ...asker, id, facts }] : [];
    });
  }

  async #byId<T extends { id: number }>(
    sql: (list: string) => string,
    ids: readonly number[],
  ): Promise<Map<number, T>> {
    const found = await selectIn<T>(this.db, sql, [...new Set(ids)]);
    return new Map(found.map((row) => [row.id, row]));
  }
}
