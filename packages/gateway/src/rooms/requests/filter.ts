import type { SqlValue } from "../../storage/contract.ts";

/** Which requests are asked for; null members ask for all. */
export interface Filter {
  surface: string | null;
  model: string | null;
  backend: string | null;
  code: string | null;
  outcome: Outcome | null;
  scope: Scope;
}

export const OUTCOMES = ["ok", "refused", "failed", "left"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Whose requests: everyone's, or those of a user, a group or a key; the last may narrow the others. */
export interface Scope {
  userId: string | null;
  groupId: string | null;
  keyId: string | null;
}

export const isEveryone = ({ userId, groupId, keyId }: Scope): boolean =>
  userId === null && groupId === null && keyId === null;

/** By HTTP status: what the client did wrong or may not do, what went wrong here or upstream, and clients that left. */
const OUTCOME_SQL: Record<Outcome, string> = {
  ok: "status < 400",
  refused: "status >= 400 AND status < 500 AND status <> 499",
  failed: "status >= 500",
  left: "status = 499",
};

/** Conditions and their values in placeholder order. */
export class Sql {
  readonly #conditions: string[] = [];

  /** Parts of one statement share their values. */
  constructor(readonly params: SqlValue[] = []) {}

  get conditions(): readonly string[] {
    return this.#conditions;
  }

  value(value: SqlValue): string {
    return `$${this.params.push(value)}`;
  }
  add(condition: string): this {
    this.#conditions.push(condition);
    return this;
  }
  get where(): string {
    return `WHERE ${this.#conditions.join(" AND ")}`;
  }

  /** Ids of the facets that the filter asks for; null: any. */
  facetsOf({ surface, model, backend, code, outcome }: Filter): string | null {
    return this.#idsIn("request_facets", { surface, model, backend, code }, outcome && OUTCOME_SQL[outcome]);
  }

  /** Ids of the askers in this scope; null: any. */
  askersOf({ userId, groupId, keyId }: Scope): string | null {
    return this.#idsIn("request_askers", { user_id: userId, group_id: groupId, key_id: keyId });
  }

  /** Of rows that have these values; null members do not matter. */
  #idsIn(table: string, has: Record<string, string | null>, more: string | null = null): string | null {
    const given = Object.entries(has).filter(([, value]) => value !== null);
    const conditions = given.map(([name, value]) => `${name} = ${this.value(value)}`);
    if (more !== null) conditions.push(more);
    return conditions.length === 0 ? null : `SELECT id FROM ${table} WHERE ${conditions.join(" AND ")}`;
  }

  matching(filter: Filter): this {
    const facets = this.facetsOf(filter);
    if (facets !== null) this.add(`facet_id IN (${facets})`);
    return this.ofScope(filter.scope);
  }

  ofScope(scope: Scope): this {
    const askers = this.askersOf(scope);
    return askers === null ? this : this.add(`asker_id IN (${askers})`);
  }
}
