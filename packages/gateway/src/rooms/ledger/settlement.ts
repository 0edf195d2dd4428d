import { isoTime } from "../../kernel/clock.ts";
import type { Transaction } from "../../storage/contract.ts";
import {
  type AccountRef,
  accountKey,
  type DebtRef,
  debtId,
  debtKey,
  type QuotaPayer,
  type Settled,
  type Settlement,
  type SettleOptions,
  settlementId,
} from "./account.ts";
import { charge, type ExactPoints, exactPoints } from "./charge.ts";
import { type AccountRow, type EntryRow, type MovementRow, NO_COST, store } from "./store.ts";

/** The entries of `movements` on one account, which has just been posted and stands at `after`. */
export function entriesOf(after: AccountRow, movements: readonly MovementRow[]): EntryRow[] {
  const signed = movements.map(({ from_account_id, points }) =>
    from_account_id === after.id ? -points : points,
  );
  let seq = after.version - movements.length;
  let balance = after.balance - signed.reduce((sum, points) => sum + points, 0);
  return movements.map((movement, index) => {
    const points = signed[index]!;
    balance += points;
    return { account_id: after.id, seq: ++seq, movement_id: movement.id, points, balance_after: balance };
  });
}

const inOrderOfId = <T>(byId: ReadonlyMap<string, T>): T[] =>
  [...byId].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);

/** One account's part of a batch, charged in memory while its row is locked. */
interface Drawing {
  account: AccountRow;
  movements: MovementRow[];
  debtEntries: number;
}

/** What a batch leaves owed by one user on one account. */
interface Debt {
  ref: DebtRef;
  movements: MovementRow[];
}

interface ChargingOptions extends Pick<SettleTerms, "pointsPerUsd" | "spent"> {
  quota: QuotaPayer | null;
  closed: ReadonlySet<string>;
}

/** Charges a batch in memory, item by item, so that each sees what earlier ones have left. */
class Charging {
  readonly settled: Settled[];
  readonly #accounts: ReadonlyMap<string, AccountRow>;
  readonly #drawings = new Map<string, Drawing>();
  readonly #debts = new Map<string, Debt>();
  readonly #known: Map<string, number>;
  /** Some item is not covered by its account. */
  isUncovered = false;
  /** Debts that have no account yet to be recorded on. */
  readonly unnoted: Settlement[] = [];

  constructor(
    readonly options: ChargingOptions,
    items: readonly Settlement[],
    given: { accounts: ReadonlyMap<string, AccountRow>; known: ReadonlyMap<string, number> },
  ) {
    // Copies: the batch may have to be charged a second time.
    this.#accounts = new Map(Array.from(given.accounts, ([id, row]) => [id, { ...row }]));
    this.#known = new Map(given.known);
    options.quota?.begin();
    this.settled = items.map((item) => this.#charge(item));
  }

  get drawings(): Drawing[] {
    return inOrderOfId(this.#drawings);
  }
  get debts(): Debt[] {
    return inOrderOfId(this.#debts);
  }

  #charge(item: Settlement): Settled {
    const before = this.#known.get(item.requestId);
    if (before !== undefined) return { points: before };
    const { quota, pointsPerUsd } = this.options;
    const account = this.#accounts.get(accountKey(item.account));
    if (!account && (!quota || quota.pays(item))) {
      this.isUncovered = true;
      return null;
    }
    const { costNanoUsd, multiplierMicros } = item;
    const exact = exactPoints({ costNanoUsd, multiplierMicros, pointsPerUsd });
    // The price exceeds what any account can hold.
    if (!exact) return null;
    if (account) {
      const charged = charge(account, exact);
      if (!charged.isCovered) {
        this.isUncovered = true;
        if (!quota || quota.pays(item)) return null;
      }
      return this.#draw(item, { ref: item.account, account, exact, charged });
    }
    this.isUncovered = true;
    const ref = walletOf(item);
    const wallet = this.#accounts.get(accountKey(ref));
    if (wallet && this.options.closed.has(accountKey(item.account)))
      return this.#draw(item, { ref, account: wallet, exact, charged: charge(wallet, exact) });
    this.unnoted.push(item);
    // The batch will be charged again. Until then, a repeat of this request must not open another account.
    this.#known.set(item.requestId, 0);
    return null;
  }

  #draw(
    item: Settlement,
    draw: { ref: AccountRef; account: AccountRow; exact: ExactPoints; charged: ReturnType<typeof charge> },
  ): Settled {
    const { ref, account, exact, charged } = draw;
    const { points, owed } = charged;
    account.balance = charged.balance;
    account.remainder = charged.remainder;
    const drawing = this.#drawings.getOrInsert(account.id, { account, movements: [], debtEntries: 0 });
    const common = {
      to_account_id: this.options.spent,
      note: null,
      actor: null,
      created_at: isoTime(item.atMs),
    };
    drawing.movements.push({
      ...common,
      id: settlementId(item.requestId),
      kind: "settlement",
      from_account_id: account.id,
      points: points - owed,
      cost_nano_usd: Number(item.costNanoUsd),
      multiplier_micros: item.multiplierMicros,
      exact_points: exact.points,
      exact_femto: exact.femto,
    });
    if (owed > 0) {
      const debtRef = { account: ref, userId: item.userId };
      const id = debtKey(debtRef);
      const debt = this.#debts.getOrInsert(id, { ref: debtRef, movements: [] });
      drawing.debtEntries++;
      debt.movements.push({
        ...common,
        id: debtId(item.requestId),
        kind: "debt",
        from_account_id: id,
        points: owed,
        ...NO_COST,
      });
    }
    this.#known.set(item.requestId, points);
    return { points };
  }
}

type SettleTerms = SettleOptions & { pointsPerUsd: number; spent: string };

const walletOf = ({ userId }: Settlement): AccountRef => ({ type: "user", id: userId });

/** Charges the batch; what nobody covers becomes a debt where there is a quota to ask first. */
async function chargeAll(
  tx: Transaction,
  items: readonly Settlement[],
  { pointsPerUsd, spent, mayExist, quota }: SettleTerms,
): Promise<Charging> {
  const keys = new Set(items.map(({ account }) => accountKey(account)));
  const accounts = await store.lockAccounts(tx, [...keys]);
  // Read after locking: any other transaction that settled the same request has committed by now.
  const readKnown = () => store.settledBefore(tx, mayExist ? items.map(({ requestId }) => requestId) : []);
  const known = await readKnown();
  const closed = new Set<string>();
  const terms = { closed, spent, pointsPerUsd };
  const hasPoints = accounts.values().some(({ balance }) => balance > 0);
  if (!quota || hasPoints) {
    const byPoints = new Charging({ ...terms, quota: null }, items, { accounts, known });
    if (!quota || !byPoints.isUncovered) return byPoints;
  }
  await quota.load(tx);
  let charged = new Charging({ ...terms, quota }, items, { accounts, known });
  // An account opened for one debt may also be needed by other items.
  while (charged.unnoted.length > 0) {
    await openMissing(tx, charged.unnoted, { accounts, closed });
    charged = new Charging({ ...terms, quota }, items, { accounts, known: await readKnown() });
  }
  return charged;
}

/** Adds the accounts for new debts to `accounts`: newly opened ones, and wallets instead of closed pools. */
async function openMissing(
  tx: Transaction,
  items: readonly Settlement[],
  { accounts, closed }: { accounts: Map<string, AccountRow>; closed: Set<string> },
): Promise<void> {
  const open = async (refs: readonly AccountRef[]) => {
    const missing = new Map(refs.map((ref) => [accountKey(ref), ref]));
    for (const id of accounts.keys()) missing.delete(id);
    for (const [id, { type }] of [...missing].sort()) await store.openAccount(tx, id, type);
    for (const [id, row] of await store.lockAccounts(tx, [...missing.keys()])) accounts.set(id, row);
  };
  await open(items.map(({ account }) => account));
  const without = items.filter(({ account }) => !accounts.has(accountKey(account)));
  for (const { account } of without) closed.add(accountKey(account));
  await open(without.map(walletOf));
  // Wallets are never closed, so this loop ends.
  for (const item of without)
    if (!accounts.has(accountKey(walletOf(item))))
      throw new Error(`ledger: ${item.userId} has no open wallet`);
}

const pointsOf = (movements: readonly MovementRow[]) =>
  movements.reduce((sum, { points }) => sum + points, 0);

/** Settles a batch inside `tx`; also returns the accounts whose balance or debts changed. */
export async function settleBatch(
  tx: Transaction,
  items: readonly Settlement[],
  options: SettleTerms,
): Promise<{ settled: Settled[]; changed: AccountRow[] }> {
  const { settled, drawings, debts } = await chargeAll(tx, items, options);
  const changed: AccountRow[] = [];
  const entries: EntryRow[] = [];
  const paid: MovementRow[] = [];
  for (const { account, movements, debtEntries } of drawings) {
    const withPoints = movements.filter(({ points }) => points > 0);
    const after = await store.draw(tx, {
      id: account.id,
      points: pointsOf(withPoints),
      remainder: account.remainder,
      entryCount: withPoints.length,
      debtEntryCount: debtEntries,
    });
    if (!after || after.balance !== account.balance)
      throw new Error(`ledger: ${account.id} changed while its row was locked`);
    if (withPoints.length + debtEntries > 0) changed.push(after);
    entries.push(...entriesOf(after, withPoints));
    paid.push(...withPoints);
  }
  for (const { ref, movements } of debts) {
    await store.openDebt(tx, ref);
    const id = debtKey(ref);
    const after = await store.post(tx, { id, points: -pointsOf(movements), entryCount: movements.length });
    if (!after) throw new Error(`ledger: ${id} cannot owe more`);
    entries.push(...entriesOf(after, movements));
    paid.push(...movements);
  }
  await store.insertMovements(
    tx,
    [...drawings, ...debts].flatMap(({ movements }) => movements),
  );
  await store.insertEntries(tx, entries);
  await options.meanwhile?.(settled);
  if (paid.length === 0) return { settled, changed };
  // The counter-entries. Every batch writes this row, so it is locked last.
  const points = pointsOf(paid);
  const spent = await store.post(tx, { id: options.spent, points, entryCount: paid.length });
  if (!spent) throw new Error("ledger: the account of spent points is full");
  await store.insertEntries(tx, entriesOf(spent, paid));
  return { settled, changed };
}
