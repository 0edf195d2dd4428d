import type { SignedIn } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { Queryable, Transaction } from "../../storage/contract.ts";
import type { AccountStore } from "./store.ts";

/** What a link, an invitation or a code gives to whoever has it, and who made it. */
export type Gift =
  /** The account that administers the service: the setup link, which the operator made. */
  | { kind: "first_account" }
  /** A new account of any tier, a new password of any account, or points. */
  | { kind: "account" | "password" | "points"; makerId: string }
  /** A place in a group: for someone who has an account, or together with a new one. */
  | { kind: "membership" | "newcomer"; makerId: string; groupId: string }
  /** Another session of the maker's; ends with the one that it was made in. */
  | { kind: "session"; makerId: string; sessionId?: string };

/** Settings that say how people get an account; administrators change them while the service runs. */
export interface SignUpSettings {
  /** True: open; false: closed; null: open until the first user exists. */
  registrationOpen: boolean | null;
  /** Members, too, bring in people who have no account. */
  memberInvitationsRegister: boolean;
  /** Tier of accounts that are made without one. */
  newAccountTier: string;
  /** How long the links of administrators can be used. */
  invitationDays: number;
}

/** Whether a link may be given now: asked in the transaction that uses it, whatever its maker could give before. */
export class Giving {
  constructor(
    readonly store: AccountStore,
    readonly settings: SignUpSettings,
  ) {}

  async mayGive(on: Queryable, gift: Gift): Promise<boolean> {
    if (gift.kind === "first_account") return !(await this.store.anyUser(on));
    const maker = await this.store.maker(on, gift.makerId, {
      groupId: "groupId" in gift ? gift.groupId : null,
      sessionId: "sessionId" in gift ? gift.sessionId : null,
    });
    if (!maker) return false;
    switch (gift.kind) {
      case "account":
      case "password":
      case "points":
        return maker.isAdmin;
      case "membership":
        return maker.isAdmin || maker.managesGroup;
      case "newcomer":
        return maker.isAdmin || (maker.managesGroup && this.#membersRegister);
      case "session":
        return !maker.sessionEnded;
    }
  }

  /** Where everyone may register, an invitation adds nothing. */
  get #membersRegister(): boolean {
    return this.settings.memberInvitationsRegister || this.settings.registrationOpen === true;
  }

  /** Keys, links and sessions are made only while the maker's session lasts; it may have ended since the call began. */
  async requireSession(tx: Transaction, { userId, sessionId }: SignedIn): Promise<void> {
    if (!(await this.mayGive(tx, { kind: "session", makerId: userId, sessionId })))
      fail("auth_required", "You are no longer signed in; sign in again");
  }

  /** Ends what someone has made and may no longer give, so that it does not come back with their rights. */
  async endLinksOf(tx: Transaction, makerId: string): Promise<void> {
    if (!(await this.mayGive(tx, { kind: "account", makerId }))) await this.store.deleteLinksBy(tx, makerId);
    for (const groupId of await this.store.groupsInvitedTo(tx, makerId))
      if (!(await this.mayGive(tx, { kind: "membership", makerId, groupId })))
        await this.store.deleteInvitationsBy(tx, makerId, groupId);
  }
}
