import type { SignedIn } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import type { Queryable, Transaction } from "../../storage/contract.ts";
import type { AccountStore } from "./store.ts";

/** What the bearer of a link, an invitation or a code gets, and who made it. */
export type Gift =
  /** A new account of any tier or a new password of any account, or points. */
  | { kind: "account" | "points"; makerId: string }
  /** A place in a group: for someone who has an account, or together with a new one. */
  | { kind: "membership" | "newcomer"; makerId: string; groupId: string };

/** How people get an account. Administrators can change these settings while the service runs. */
export interface SignUpSettings {
  /** True: open; false: closed; null: open until the first user exists. */
  registrationOpen: boolean | null;
  /** Invitations by group members may also create accounts. */
  memberInvitationsRegister: boolean;
  /** Default tier of new accounts. */
  newAccountTier: string;
  /** How long administrators' links are valid. */
  invitationDays: number;
}

/** Whether the maker of a link may give this now. Asked in the transaction that uses the link. */
export class Giving {
  constructor(readonly options: { store: AccountStore; signUp: SignUpSettings }) {}

  async mayGive(on: Queryable, gift: Gift): Promise<boolean> {
    const { store, signUp } = this.options;
    const maker = await store.maker(on, gift.makerId, "groupId" in gift ? gift.groupId : null);
    if (!maker || maker.is_admin || gift.kind === "account" || gift.kind === "points")
      return Boolean(maker?.is_admin);
    // If everyone may register, an invitation gives nothing more.
    const membersRegister = signUp.memberInvitationsRegister || signUp.registrationOpen === true;
    return Boolean(maker.manages_group) && (gift.kind === "membership" || membersRegister);
  }

  /** Keys, links and sessions require that the maker's session has not ended since the call began. */
  async requireSession(tx: Transaction, signedIn: SignedIn): Promise<void> {
    if (!(await this.options.store.isSignedIn(tx, signedIn)))
      fail("auth_required", "You are no longer signed in; sign in again");
  }

  /** Deletes links that their maker may no longer give, so that they do not work again if the maker regains the right. */
  async endLinksOf(tx: Transaction, makerId: string): Promise<void> {
    const { store } = this.options;
    if (!(await this.mayGive(tx, { kind: "account", makerId }))) await store.deleteLinksBy(tx, makerId);
    for (const groupId of await store.groupsInvitedTo(tx, makerId))
      if (!(await this.mayGive(tx, { kind: "membership", makerId, groupId })))
        await store.deleteInvitationsBy(tx, makerId, groupId);
  }
}
