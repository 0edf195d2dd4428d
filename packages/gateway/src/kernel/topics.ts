/** Bus topics that more than one room uses. */

/** Message: the id of a key, user or group whose cached principals are no longer true. */
export const PRINCIPAL_CHANGED = "principal-changed";
/** Message: the id of a user whose account changed. */
export const USER_CHANGED = "user-changed";
/** Message: JSON of an account whose balance was committed, as `BalanceChange` of the ledger has it. */
export const LEDGER_CHANGED = "ledger-changed";
