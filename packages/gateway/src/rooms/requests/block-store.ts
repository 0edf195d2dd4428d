import { nextTurn } from "../../kernel/turns.ts";
import {
  type Database,
  insertRows,
  type Queryable,
  selectIn,
  type Transaction,
} from "../../storage/contract.ts";
import { type Block, blockIdsFor, endOfBucket, type IdRange, rowsIn } from "./blocks.ts";
import { type Filter, Sql } from "./filter.ts";
import type { Facet, RecordRow } from "./rows.ts";

/** Blocks that are read at once: few enough that reading them takes a millisecond. */
const BLOCKS_AT_ONCE = 8;
/** The same where the database looks into them first, and most have nothing that is sought. */
const SEARCHED_AT_ONCE = 32;
/** Periods that one statement looks through. */
const RANGES_AT_ONCE = 16;
/** With at most so many numbers to look for, the database leaves out the records of blocks that have none of them. */
const SOUGHT_MAX = 8;

/** A request with what its numbers stand for. */
export interface ListedRecord extends Omit<Facet, "id">, RecordRow {
  user_id: string | null;
  user_email: string | null;
  key_id: string | null;
  key_prefix: string | null;
  key_name: string | null;
  group_id: string | null;
  project: string | null;
}

export interface ListedPage {
  records: ListedRecord[];
  nextCursor: string | null;
}

type AskerRow = Omit<ListedRecord, keyof Facet | keyof RecordRow> & { id: number };

export async function insertBlocks(tx: Transaction, blocks: readonly Block[]): Promise<void> {
  const rows = blocks.map(({ firstId, requests, records }) => [firstId, requests, records]);
  await insertRows(
    tx,
    "record_blocks (first_id, requests, records)",
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
  on.all("SELECT first_id, requests FROM record_blocks WHERE first_id < $1 ORDER BY first_id DESC LIMIT $2", [
    belowId,
    blocksMax,
  ]);

/** What a list looks for; null: everything. */
interface Sought {
  facets: ReadonlySet<number> | null;
  askers: ReadonlySet<number> | null;
}

/** SQL of the blocks that request records lie in. */
export class BlockStore {
  constructor(readonly db: Database) {}

  /** Requests of these periods, newest first. No two periods share a block, and the newest is the first. */
  async list(filter: Filter, ranges: readonly IdRange[], limit: number): Promise<ListedPage> {
    const sought: Sought = {
      facets: await this.#numbers((sql) => sql.facetsOf(filter)),
      askers: await this.#numbers((sql) => sql.askersOf(filter.scope)),
    };
    const found: RecordRow[] = [];
    if (sought.facets?.size === 0 || sought.askers?.size === 0) return { records: [], nextCursor: null };
    // One more than asked for says whether there is another page.
    for (let i = 0; i < ranges.length && found.length <= limit; i += RANGES_AT_ONCE)
      found.push(
        ...(await this.#find(sought, ranges.slice(i, i + RANGES_AT_ONCE), limit + 1 - found.length)),
      );
    const page = found.slice(0, limit);
    return {
      records: await this.#named(page),
      nextCursor: found.length > limit ? page.at(-1)!.id : null,
    };
  }

  async find(id: string): Promise<ListedRecord | null> {
    const { fromId, belowId } = blockIdsFor({ fromId: id, belowId: id });
    const blocks = await this.db.all<Pick<Block, "requests" | "records">>(
      "SELECT requests, records FROM record_blocks WHERE first_id >= $1 AND first_id < $2",
      [fromId, belowId],
    );
    const row = blocks.flatMap(rowsIn).find((row) => row.id === id);
    return row ? ((await this.#named([row]))[0] ?? null) : null;
  }

  /** Deletes the oldest blocks up to this id, with about so many requests: returns how many they held. */
  async deleteUpTo(id: string, requestsMax: number): Promise<number> {
    const oldest = await this.db.all<{ first_id: string; requests: number }>(
      "SELECT first_id, requests FROM record_blocks WHERE first_id <= $1 ORDER BY first_id LIMIT $2",
      [id, requestsMax],
    );
    let removed = 0;
    let last: string | null = null;
    for (const { first_id, requests } of oldest) {
      if (removed >= requestsMax) break;
      removed += requests;
      last = first_id;
    }
    if (last !== null) await this.db.run("DELETE FROM record_blocks WHERE first_id <= $1", [last]);
    return removed;
  }

  async #numbers(select: (sql: Sql) => string | null): Promise<ReadonlySet<number> | null> {
    const sql = new Sql();
    const text = select(sql);
    if (text === null) return null;
    const rows = await this.db.all<{ id: number }>(text, sql.params);
    return new Set(rows.map(({ id }) => id));
  }

  /**
   * Blocks are read newest first until the page is full. Those of the same moment are in no order, so what the last
   * block read has in common with the next one is not final yet.
   */
  async #find(sought: Sought, ranges: readonly IdRange[], limit: number): Promise<RecordRow[]> {
    const isWanted = ({ id, askerId, facetId }: RecordRow) =>
      (sought.askers?.has(askerId) ?? true) &&
      (sought.facets?.has(facetId) ?? true) &&
      ranges.some(({ fromId, belowId }) => id >= fromId && id < belowId);
    const found: RecordRow[] = [];
    const newest = () => found.sort((a, b) => (a.id < b.id ? 1 : -1)).slice(0, limit);
    let { belowId } = blockIdsFor(ranges[0]!);
    for (;;) {
      const { blocks, isLast } = await this.#blocks(sought, ranges, belowId);
      for (const { first_id, requests, records } of blocks) {
        if (records !== null) found.push(...rowsIn({ requests, records }).filter(isWanted));
        belowId = first_id;
        if (found.length >= limit && newest().at(-1)!.id >= endOfBucket(belowId)) return newest();
      }
      if (isLast) return newest();
      // There may be thousands of blocks, and SQLite answers at once.
      await nextTurn();
    }
  }

  /** The next blocks below this id. A block that cannot have what is sought comes without its records. */
  async #blocks({ facets, askers }: Sought, ranges: readonly IdRange[], belowId: string) {
    const sql = new Sql();
    const mayHave = [facets, askers]
      .filter((numbers) => numbers !== null && numbers.size <= SOUGHT_MAX)
      .map((numbers) => `(${[...numbers!].map((number) => this.#contains(number, sql)).join(" OR ")})`);
    const isSearched = mayHave.length > 0;
    const records = isSearched ? `CASE WHEN ${mayHave.join(" AND ")} THEN records END AS records` : "records";
    // One upper bound for each: of two, SQLite would look up one and pass over what the other excludes.
    const parts = ranges
      .map(blockIdsFor)
      .map((ids) => ({ ...ids, belowId: ids.belowId < belowId ? ids.belowId : belowId }))
      .map(
        (ids) => `SELECT first_id, requests, ${records} FROM record_blocks
          WHERE first_id >= ${sql.value(ids.fromId)} AND first_id < ${sql.value(ids.belowId)}`,
      );
    const blocksMax = isSearched ? SEARCHED_AT_ONCE : BLOCKS_AT_ONCE;
    const blocks = await this.db.all<{ first_id: string; requests: number; records: Uint8Array | null }>(
      `SELECT * FROM (${parts.join(" UNION ALL ")}) AS blocks ORDER BY first_id DESC LIMIT ${blocksMax}`,
      sql.params,
    );
    return { blocks, isLast: blocks.length < blocksMax };
  }

  /** Whether the number stands in a block: its bytes may do so by chance, too. */
  #contains(number: number, sql: Sql): string {
    const sought = sql.value(new Uint8Array(new Float64Array([number]).buffer));
    return this.db.dialect === "sqlite"
      ? `INSTR(records, ${sought}) > 0`
      : `POSITION(${sought} IN records) > 0`;
  }

  async #named(rows: readonly RecordRow[]): Promise<ListedRecord[]> {
    const facets = await this.#byId<Facet>(
      (list) => `SELECT id, surface, model, backend, status, code FROM request_facets WHERE id IN ${list}`,
      rows.map(({ facetId }) => facetId),
    );
    const askers = await this.#byId<AskerRow>(
      (
        list,
      ) => `SELECT a.id, a.user_id, u.email AS user_email, a.key_id, a.key_prefix, k.name AS key_name, a.group_id,
          a.project
        FROM request_askers a LEFT JOIN users u ON u.id = a.user_id LEFT JOIN api_keys k ON k.id = a.key_id
        WHERE a.id IN ${list}`,
      rows.map(({ askerId }) => askerId),
    );
    return rows.flatMap((row) => {
      const [facet, asker] = [facets.get(row.facetId), askers.get(row.askerId)];
      return facet && asker ? [{ ...facet, ...asker, ...row }] : [];
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
