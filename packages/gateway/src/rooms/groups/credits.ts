import { fail } from "../../kernel/errors.ts";
import type { Database } from "../../storage/contract.ts";
import type { AccountRef, Ledger, Statement } from "../ledger/index.ts";
import { type AccessOptions, accessGroup, changeGroup } from "./access.ts";
import type { Members } from "./members.ts";
import { store } from "./store.ts";

export interface CreditsOptions {
  db: Database;
  ledger: Ledger;
  members: Members;
}

type InGroup = Omit<AccessOptions, "need">;

const pool = (groupId: string): AccountRef => ({ type: "group", id: groupId });

/** The group's pool of points. */
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
    return changeGroup(ledger, { ...call, need: "admin" }, async (tx) => {
      const member = await store.member(tx, call.groupId, user.userId);
      if (!member?.is_active)
        fail("not_found", `${person} is not an active member of this group; points go to members only`);
      const moved = await ledger.allocate(tx, {
        from: pool(call.groupId),
        to: { type: "user", id: user.userId },
        order: { points, note, actor: call.actor.userId },
      });
      if (!moved)
        fail(
          "conflict",
          `The pool holds fewer than ${points} points; group.credits.balance shows it, a platform administrator tops it up`,
        );
      return { poolBalance: moved.fromBalance, email: user.email };
    });
  }
}
