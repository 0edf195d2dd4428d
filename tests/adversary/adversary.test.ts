import { expect, test } from "bun:test";
import { canShare } from "../../packages/gateway/tests/instances/support.ts";
import { storm } from "./storm.ts";

/** As many rounds as fit, and no more than prove something: the long run is `npm run adversary`. */
const STORM_MS = 11_000;
const ROUNDS_MAX = 8;
const TEST_MS = 120_000;
/** Always the same requests here; `npm run adversary` looks for others. */
const SEED = 722_474_327;

const stages = [
  { name: "one process on SQLite", database: "sqlite", instances: 1, possible: true },
  { name: "three instances over Postgres and Redis", database: "postgres", instances: 3, possible: canShare },
] as const;

for (const { name, possible, ...stage } of stages) {
  test.skipIf(!possible)(
    `nothing is served unpaid by ${name}`,
    async () => {
      const { findings, tally } = await storm({
        ...stage,
        seed: SEED,
        durationMs: STORM_MS,
        roundsMax: ROUNDS_MAX,
        worlds: 2,
        kills: 1,
        shrinkMs: 0,
        say: () => {},
      });
      console.log(`storm on ${name}, seed ${SEED}: ${tally.lines().slice(0, 2).join("; ")}`);
      const how = `npm run adversary -- --database ${stage.database} --instances ${stage.instances} --rounds 1 --seed`;
      expect(findings.map(({ rule, message, seed: at }) => `${rule}: ${message} (${how} ${at})`)).toEqual([]);
      // A storm in which nothing was served, left or refused would prove nothing.
      expect(tally.times("outcome: served")).toBeGreaterThan(20);
      expect(tally.times("outcome: left")).toBeGreaterThan(5);
      expect(tally.times("paid by points")).toBeGreaterThan(5);
      expect(tally.times("paid by quota")).toBeGreaterThan(5);
    },
    TEST_MS,
  );
}
