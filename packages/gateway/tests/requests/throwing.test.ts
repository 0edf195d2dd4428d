/** Noting a request is no part of paying for it. */
import { afterAll, beforeAll, expect, spyOn, test } from "bun:test";
import { RequestRecord } from "../../src/kernel/request-record.ts";
import type { MeteringService } from "../../src/rooms/metering/index.ts";
import { bootSpending, type Spender, type SpendingBench } from "../support/spending.ts";

let bench: SpendingBench;
let who: Spender;
beforeAll(async () => {
  bench = await bootSpending();
  who = await bench.spender("ann", { points: 1_000, drained: true });
});
afterAll(() => bench.stop());

const holds = () => (bench.app.rooms.metering as MeteringService).holdCount;
const over = async () => {
  while (bench.app.rooms.inference.callsInFlight > 0) await Bun.sleep(5);
};

for (const noting of ["used", "end"] as const)
  test(`a record that fails in ${noting} leaves no hold, and keeps no usage out of the books`, async () => {
    const failing = spyOn(RequestRecord.prototype, noting).mockImplementation(() => {
      throw new Error("broken");
    });
    const before = (await who.rows()).length;
    await who.chat({ max_tokens: 5 });
    const leaving = new AbortController();
    await who.chat({ max_tokens: 5, stream: true }, { signal: leaving.signal });
    await over();
    leaving.abort();
    expect(failing).toHaveBeenCalled();
    failing.mockRestore();
    expect([(await who.rows()).length - before, holds()]).toEqual([2, 0]);
  });
