import type { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import type { Actor, CallSource, SignedIn } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { deleteExpired, insertAll, type Sweep } from "../../storage/contract.ts";
import type { AccountRef } from "../ledger/index.ts";
import { accessGroup, lockGroup } from "./members.ts";
import type { CodeOrder } from "./methods.ts";
import type { GroupsOptions } from "./service.ts";
import { store } from "./store.ts";

const CODE_PREFIX = "points-";
const CODE_BYTES = 16;
const TRIES_PER_IP = 20;

/** Codes with points that administrators hand out. Each can be redeemed once, into a wallet or a pool. */
export class Codes {
  constructor(readonly options: GroupsOptions) {}

  readonly sweep: Sweep = (...step) =>
    deleteExpired(this.options.db, { table: "redemption_codes", key: "code_hash" }, ...step);

  async create(actor: SignedIn, { count, points, note, ttl_secs }: z.output<typeof CodeOrder>) {
    const { db, ids, clock, accounts } = this.options;
    const id = ids.uuid();
    const createdMs = clock.now();
    const expires_at = isoTime(createdMs + ttl_secs * 1000);
    const common = {
      batch_id: id,
      points,
      note: note ?? null,
      created_by: actor.userId,
      created_at: isoTime(createdMs),
    };
    const codes = Array.from({ length: count }, () => `${CODE_PREFIX}${ids.secret(CODE_BYTES)}`);
    await db.transaction(async (tx) => {
      await accounts.giving.requireSession(tx, actor);
      const rows = codes.map((code) => ({ code_hash: sha256Hex(code), ...common, expires_at }));
      await insertAll(tx, "redemption_codes", rows);
    });
    return { id, codes, expires_at };
  }

  list() {
    return store.codeBatches(this.options.db);
  }

  /** Ends what was not redeemed of a batch. */
  async revoke(batchId: string): Promise<void> {
    if (!(await store.revokeCodes(this.options.db, batchId)))
      fail("not_found", "All codes of this batch are redeemed, revoked or expired");
  }

  /** Issues the code's points to the caller's wallet, or to the pool of one of their groups. */
  async redeem(
    actor: Actor,
    { code, group_id: groupId }: { code: string; group_id?: string },
    { ip }: CallSource,
  ) {
    const { ledger, clock, accounts } = this.options;
    const to: AccountRef = groupId ? { type: "group", id: groupId } : { type: "user", id: actor.userId };
    const redeemed = await ledger.transaction(async (tx) => {
      if (groupId) {
        await lockGroup(tx, groupId);
        await accessGroup(tx, { actor, groupId, need: "member", method: "codes.redeem" });
      }
      const hash = sha256Hex(code);
      // Lock the maker before the code: revoking the maker's right locks in the same order.
      const makerId = await store.codeMaker(tx, hash);
      if (makerId === null || !(await accounts.giving.mayGive(tx, { kind: "points", makerId }))) return null;
      const used = { hash, userId: actor.userId, now: isoTime(clock.now()) };
      const taken = await store.redeemCode(tx, used);
      if (!taken) return null;
      const { points, note } = taken;
      const order = { points, note: note ?? "redemption code", actor: actor.userId };
      return { points, balance: await ledger.topup(tx, to, order) };
    });
    if (redeemed) return redeemed;
    await accounts.limit("code", ip, TRIES_PER_IP);
    return fail("not_found", "The code is unknown, was redeemed before, was revoked, or has expired");
  }
}
