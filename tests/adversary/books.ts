import type { Flight } from "./flights.ts";
import type { Population, Someone } from "./population.ts";
import type { Stage } from "./stage.ts";

/** A usage row, as the database has it. */
export interface Row {
  id: string;
  userId: string;
  signedIn: boolean;
  project: string | null;
  model: string;
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number;
  costUsd: number | null;
  points: number | null;
}

/** Everything that was written down about the people of a round. */
export interface Books {
  rows: Row[];
  /** Points by account. */
  balances: Map<string, number>;
  /** What is owed, in points, by `<account> <user id>`. */
  debts: Map<string, number>;
}

const FLUSH_MS = 3_000;
const OPEN_MS = 5_000;

/** Waits until nothing of the round is under way, and has every instance write down what it still keeps. */
export async function quiesce(
  stage: Stage,
  population: Population,
  flights: readonly Flight[],
): Promise<void> {
  const isOpen = () => flights.some(({ dispatch }) => dispatch?.end === "open");
  for (const deadline = Date.now() + OPEN_MS; isOpen() && Date.now() < deadline; ) await Bun.sleep(10);
  await Promise.all(
    stage.instances.map((instance) => instance.rpc("billing.plan", {}, population.people[0]!.token)),
  );
}

/** Reads the books; waits for rows that are missing, since a request may be settled a moment after its end. */
export async function readBooks(
  stage: Stage,
  population: Population,
  isComplete: (rows: readonly Row[]) => boolean,
): Promise<Books> {
  const ids = population.people.map(({ userId }) => userId);
  const places = ids.map((_, i) => `$${i + 1}`).join(", ");
  let rows: Row[] = [];
  for (const deadline = Date.now() + FLUSH_MS; ; await Bun.sleep(50)) {
    rows = (
      await stage.db.all<Record<string, string | number | null>>(
        `SELECT id, user_id, key_id, project, model, prompt_tokens, completion_tokens, cached_tokens, cost, points FROM usage_records WHERE user_id IN (${places})`,
        ids,
      )
    ).map((row) => ({
      id: String(row.id),
      userId: String(row.user_id),
      signedIn: row.key_id === null,
      project: row.project === null ? null : String(row.project),
      model: String(row.model),
      promptTokens: Number(row.prompt_tokens),
      completionTokens: Number(row.completion_tokens),
      cachedTokens: Number(row.cached_tokens),
      costUsd: row.cost === null ? null : Number(row.cost),
      points: row.points === null ? null : Number(row.points),
    }));
    if (isComplete(rows) || Date.now() > deadline) break;
  }
  return { rows, ...(await readAccounts(stage, population)) };
}

const DEBT = "debt:";

async function readAccounts(
  stage: Stage,
  { people, groupId }: Population,
): Promise<Pick<Books, "balances" | "debts">> {
  const balances = new Map<string, number>();
  const debts = new Map<string, number>();
  const own = people.flatMap(({ userId }) => [`user:${userId}`, ...debtAccounts(userId, groupId)]);
  const ids = [...own, `group:${groupId}`];
  const places = ids.map((_, i) => `$${i + 1}`).join(", ");
  const accounts = await stage.db.all<{ id: string; balance: number }>(
    `SELECT id, balance FROM ledger_accounts WHERE id IN (${places})`,
    ids,
  );
  for (const { id, balance } of accounts) {
    if (!id.startsWith(DEBT)) balances.set(id, Number(balance));
    else debts.set(id.slice(DEBT.length), -Number(balance));
  }
  return { balances, debts };
}

/** `debt:user:<user>` for a wallet, `debt:group:<group>:<user>` for a pool: one member's does not stop the others. */
const debtAccounts = (userId: string, groupId: string) => [
  `${DEBT}user:${userId}`,
  `${DEBT}group:${groupId}:${userId}`,
];

export const debtOf = (books: Books, account: string, { userId }: Pick<Someone, "userId">): number =>
  books.debts.get(account.startsWith("group:") ? `${account}:${userId}` : account) ?? 0;
