import type { Clock } from "../../kernel/clock.ts";
import { fail } from "../../kernel/errors.ts";
import type { Database } from "../../storage/contract.ts";
import type { AccountRef, Ledger, Statement } from "../ledger/index.ts";
import type { Metering, PointsHold } from "../metering/index.ts";
import { accessGroup, changeGroup, type InGroup } from "./access.ts";
import type { Members } from "./members.ts";
import { store } from "./store.ts";

interface CreditsOptions {
  db: Database;
  clock: Clock;
  ledger: Ledger;
  members: Members;
  metering: Pick<Metering, "holdPoints">;
}

const HOLD_AGAIN_AFTER_MS = [0, 50, 200];

const pool = (groupId: string): AccountRef => ({ type: "group", id: groupId });

export class Credits {
  constructor(readonly options: CreditsOptions) {}

  /** The caller is a platform administrator: the method's own right. */
  topup(call: InGroup, { points, note }: { points: number; note: string | null }): Promise<number> {
    const { ledger } = this.options;
    return changeGroup(ledger, { ...call, need: "admin" }, (tx) =>
      ledger.topup(tx, pool(call.groupId), { points, note, actor: call.actor.userId }),
    );
  }

  async balance(call: InGroup): Promise<Statement> {
    await accessGroup(this.options.db, { ...call, need: "admin" });
    return this.options.ledger.statement(pool(call.groupId));
  }

  /** Moves points from the pool to a member's wallet and returns what the pool has left. */
  async allocate(
    call: InGroup,
    { person, points, note }: { person: string; points: number; note: string | null },
  ): Promise<{ poolBalance: number; email: string }> {
    const { ledger, members } = this.options;
    const user = await members.person(call, person);
    const hold = (await this.#hold(call.groupId, points)) ?? (await this.#refuseHeld(call.groupId, points));
    try {
      return await changeGroup(ledger, { ...call, need: "admin" }, async (tx) => {
        const member = await store.member(tx, call.groupId, user.userId);
        if (!member?.is_active)
          fail("not_found", `${person} is not an active member of this group; points go to members only`);
        const moved = await ledger.allocate(tx, {
          from: pool(call.groupId),
          to: { type: "user", id: user.userId },
          order: { points, note, actor: call.actor.userId },
        });
        if (!moved) refuseShort(points);
        return { poolBalance: moved.fromBalance, email: user.email };
      });
    } finally {
      hold.release();
    }
  }

  /**
   * Runs `work`, which empties the pool, while all of its points are held: no request is admitted on them meanwhile.
   * Refused while requests hold some of them, because the pool still has to pay those requests.
   */
  async whileHeld<T>(groupId: string, work: () => Promise<T>): Promise<T> {
    const { balance } = await this.options.ledger.balances.load(pool(groupId));
    const hold = await this.#hold(groupId, balance);
    if (!hold)
      fail(
        "conflict",
        "Requests in progress hold points of the pool; delete the group when they have ended. Deactivate members (group.members.update) to stop new ones",
      );
    try {
      return await work();
    } finally {
      hold.release();
    }
  }

  /**
   * Holds points of the pool; null when fewer are free. A concurrent transfer may have moved its points
   * already and still hold them, so this is retried before giving up.
   */
  async #hold(groupId: string, points: number): Promise<PointsHold | null> {
    const { metering, ledger, clock } = this.options;
    const account = pool(groupId);
    let held = await metering.holdPoints(account, points);
    for (const waitMs of HOLD_AGAIN_AFTER_MS) {
      if (held) break;
      await new Promise<void>((resolve) => clock.after(waitMs, resolve));
      // The cached balance may have been out of date.
      if ((await ledger.balances.load(account)).balance < points) return null;
      held = await metering.holdPoints(account, points);
    }
    return held;
  }

  async #refuseHeld(groupId: string, points: number): Promise<never> {
    const { balance } = await this.options.ledger.balances.load(pool(groupId));
    if (balance < points) refuseShort(points);
    fail(
      "conflict",
      `The pool has ${balance} points, but requests in progress hold too many of them to allocate ${points}; try again when they have ended, or allocate fewer`,
    );
  }
}

function refuseShort(points: number): never {
  fail(
    "conflict",
    `The pool holds fewer than ${points} points; group.credits.balance shows it, a platform administrator tops it up`,
  );
}
