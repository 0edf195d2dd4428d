import { SettlingThread } from "../../src/app/journal-thread/thread.ts";
import { settlerOn } from "../../src/app/journal-thread/worker.ts";
import type { Bus } from "../../src/bus/contract.ts";
import { openBus, type Shared } from "../../src/bus/index.ts";
import type { Clock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { type Log, silentLog } from "../../src/kernel/log.ts";
import { MULTIPLIER_ONE, type Payer } from "../../src/kernel/payer.ts";
import { Metrics } from "../../src/observe/metrics.ts";
import { Billing } from "../../src/rooms/billing/index.ts";
import { type AccountRef, Ledger } from "../../src/rooms/ledger/index.ts";
import {
  type Admission,
  type AdmitOptions,
  type FinalUsage,
  MeteringService,
  type Settler,
} from "../../src/rooms/metering/index.ts";
import { Usage } from "../../src/rooms/usage/index.ts";
import type { Database } from "../../src/storage/contract.ts";
import type { StorageOptions } from "../../src/storage/index.ts";

export const POINTS_PER_USD = 100;
/** Costs exactly one US cent, one point, per 1,000 prompt tokens; completions are free. */
export const CENT_MODEL = "test-cent-model";
export const CENT_TOKENS = 1000;
/** The same for output: a cent per 1,000 tokens of the answer, the prompt is free. */
export const CENT_OUTPUT_MODEL = "test-output-model";
const PRICES = {
  prices: [
    { match: CENT_MODEL, input: 10, output: 0 },
    { match: CENT_OUTPUT_MODEL, input: 0, output: 10 },
  ],
};

export interface Bench {
  db: Database;
  bus: Bus;
  ledger: Ledger;
  usage: Usage;
  billing: Billing;
  metering: MeteringService;
  topup(account: AccountRef, points: number): Promise<number>;
  rows(): Promise<Row[]>;
  /** Ends it in an orderly way; the database stays open. */
  close(): Promise<void>;
}

export interface Row {
  id: string;
  user_id: string;
  model: string;
  total_tokens: number;
  cost: number | null;
  created_at: string;
  points: number | null;
  account_type: string | null;
}

export interface BenchOptions {
  db: Database;
  dataDir: string;
  clock: Clock;
  log?: Log;
  /** What instances share; unset: this one is alone. */
  shared?: Shared;
  /** Settles in a thread of its own on this database, as the service does; unset: in this one, on `db`. */
  threadOn?: StorageOptions;
  settler?: Settler;
}

/** Everything that meters, on `db`, without a server around it. */
export async function openBench({
  db,
  dataDir,
  clock,
  log = silentLog,
  shared,
  threadOn,
  settler,
}: BenchOptions): Promise<Bench> {
  const { bus, counter } =
    shared ?? (await openBus({ redisUrl: null, service: "", clock, ids: randomIds, log }));
  const ids = randomIds;
  const ledger = new Ledger({ db, bus, clock, ids, pointsPerUsd: POINTS_PER_USD });
  const usage = new Usage({ db, clock, settings: { usageRetentionMonths: null } });
  const pricingFile = `${dataDir}/prices.json`;
  await Bun.write(pricingFile, JSON.stringify(PRICES));
  const { balances } = ledger;
  const pointsPerUsd = POINTS_PER_USD;
  const billing = new Billing({ db, bus, clock, log, usage, balances, pointsPerUsd, pricingFile });
  await billing.start();
  const thread = threadOn ? new SettlingThread({ db, log, storage: threadOn, pointsPerUsd }) : null;
  const metering = new MeteringService({
    settler: settler ?? thread ?? settlerOn(db, pointsPerUsd),
    clock,
    ids,
    log,
    counter,
    instances: null,
    metrics: new Metrics(),
    billing,
    usage,
    ledger,
    pointsPerUsd,
    dataDir,
  });
  return {
    db,
    bus,
    ledger,
    usage,
    billing,
    metering,
    topup: (account, points) =>
      ledger.transaction((tx) => ledger.topup(tx, account, { points, note: null, actor: "test" })),
    rows: () =>
      db.all<Row>(
        "SELECT id, user_id, model, total_tokens, cost, created_at, points, account_type FROM usage_records ORDER BY id",
      ),
    async close() {
      await metering.close(10_000);
      await thread?.close();
      billing.close();
    },
  };
}

export const payer = (fields: Partial<Payer> = {}): Payer => ({
  userId: crypto.randomUUID(),
  keyId: crypto.randomUUID(),
  attribution: "0a1b2c3d",
  project: "default",
  groupId: null,
  costMultiplierMicros: MULTIPLIER_ONE,
  rpmCeiling: null,
  keyLimits: null,
  tier: "free",
  ...fields,
});

/** A signed-in person instead of a key. */
export const person = (userId: string = crypto.randomUUID()): Payer =>
  payer({ userId, keyId: null, attribution: `jwt-${userId}`, project: null });

/** A request that is held for, and costs, the given cents. */
export const centRequest = (who: Payer, cents = 1): AdmitOptions => ({
  requestId: Bun.randomUUIDv7(),
  payer: who,
  model: CENT_MODEL,
  bound: { promptTokens: CENT_TOKENS * cents, outputTokensMax: 0, outputTokensMin: 0 },
  refId: null,
});

/** A request whose answer may have this many tokens, and is not lowered below `least`. */
export const outputRequest = (who: Payer, most: number, least = Math.min(most, 256)): AdmitOptions => ({
  requestId: Bun.randomUUIDv7(),
  payer: who,
  model: CENT_OUTPUT_MODEL,
  bound: { promptTokens: 10, outputTokensMax: most, outputTokensMin: least },
  refId: null,
});

export const centUsage = (cents = 1): FinalUsage => ({
  backend: "gateway",
  promptTokens: CENT_TOKENS * cents,
  completionTokens: 0,
  estimated: false,
});

/** A request that is admitted, answered and settled, at what it was held for unless told otherwise. */
export async function spend(
  { metering }: Bench,
  who: Payer,
  cents = 1,
  settledCents = cents,
): Promise<string> {
  const request = centRequest(who, cents);
  const admission: Admission = await metering.admit(request);
  admission.settle(centUsage(settledCents));
  return request.requestId;
}
