import type { RequestLine } from "../../kernel/request-row.ts";
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

export const isOfAnyKind = ({ surface, model, backend, code, outcome }: Filter): boolean =>
  [surface, model, backend, code, outcome].every((member) => member === null);

/** By HTTP status: what the client did wrong or may not do, what went wrong here or upstream, and clients that left. */
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

export function matches({ scope, ...wanted }: Filter, line: RequestLine): boolean {
  const isOf = (want: string | null, has: string | null) => want === null || want === has;
  return (
    isOf(scope.userId, line.userId) &&
    isOf(scope.groupId, line.groupId) &&
    isOf(scope.keyId, line.keyId) &&
    isOf(wanted.surface, line.surface) &&
    isOf(wanted.model, line.model) &&
    isOf(wanted.backend, line.backend) &&
    isOf(wanted.code, line.code) &&
    isOf(wanted.outcome, outcomeOf(line.status ?? 0))
  );
}

/** Conditions and their values in placeholder order. */
export class Sql {
  readonly #conditions: string[] = [];

  /** Parts of one statement share their values. */
  constructor(readonly params: SqlValue[] = []) {}

  value(value: SqlValue): string {
    return `$${this.params.push(value)}`;
  }

  add(condition: string): this {
    this.#conditions.push(condition);
    return this;
  }

  within(column: string, { fromMs, belowMs }: { fromMs: number; belowMs: number }): this {
    return this.add(`${column} >= ${this.value(fromMs)}`).add(`${column} < ${this.value(belowMs)}`);
  }

  #has(columns: Record<string, string | null>): this {
    for (const [column, value] of Object.entries(columns))
      if (value !== null) this.add(`${column} = ${this.value(value)}`);
    return this;
  }

  /** Of these surfaces, models and so on. */
  ofKind({ surface, model, backend, code, outcome }: Filter): this {
    this.#has({ surface, model, backend, code });
    return outcome === null ? this : this.add(OUTCOME_SQL[outcome]);
  }

  ofScope({ userId, groupId, keyId }: Scope): this {
    return this.#has({ user_id: userId, group_id: groupId, key_id: keyId });
  }

  get where(): string {
    return `WHERE ${this.#conditions.join(" AND ")}`;
  }
}
