import { Conditions } from "../../storage/contract.ts";
import type { ListedRow } from "./view.ts";

export const OUTCOMES = ["ok", "refused", "failed", "left"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Whose requests, and what for. There are sums only for everyone and for one user. */
const SCOPE = ["user_id", "group_id", "key_id", "project", "ref_id"] as const;
const KIND = ["surface", "model", "backend", "code"] as const;

/** By column; absent columns match everything. */
export interface Filter extends Partial<Record<(typeof SCOPE)[number] | (typeof KIND)[number], string>> {
  outcome?: Outcome;
}

const asksForAll = (filter: Filter, columns: readonly (keyof Filter)[]): boolean =>
  columns.every((column) => filter[column] === undefined);
export const isEveryone = (filter: Filter): boolean => asksForAll(filter, SCOPE);
/** One person's: these are summed up by day. */
export const isOfPerson = ({ user_id, ...others }: Filter): boolean =>
  user_id !== undefined && isEveryone(others);
export const isOfAnyKind = (filter: Filter): boolean => asksForAll(filter, [...KIND, "outcome"]);

/** Refused: the client's fault; failed: ours or the upstream's; left: the client disconnected. */
const OUTCOME_SQL: Record<Outcome, string> = {
  ok: "status < 400",
  refused: "status >= 400 AND status < 500 AND status <> 499",
  failed: "status >= 500",
  left: "status = 499",
};

export function outcomeOf(status: number): Outcome {
  if (status === 499) return "left";
  return status < 400 ? "ok" : status < 500 ? "refused" : "failed";
}

export const matches = (filter: Filter, row: ListedRow): boolean =>
  [...SCOPE, ...KIND].every((column) => filter[column] === undefined || filter[column] === row[column]) &&
  (filter.outcome === undefined || filter.outcome === outcomeOf(row.status));

export class Sql extends Conditions {
  ofKind(filter: Filter): this {
    for (const column of KIND) this.has(column, filter[column]);
    return filter.outcome === undefined ? this : this.add(OUTCOME_SQL[filter.outcome]);
  }

  ofScope(filter: Filter): this {
    for (const column of SCOPE) this.has(column, filter[column]);
    return this;
  }
}
