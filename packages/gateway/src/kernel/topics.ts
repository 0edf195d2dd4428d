/** Message: the id of a key, user or group whose cached principals are outdated. */
export const PRINCIPAL_CHANGED = "principal-changed";
/** Message: the id of a user whose account changed. */
export const USER_CHANGED = "user-changed";
/** Message: a committed balance, as JSON of the ledger's `BalanceChange`. */
export const LEDGER_CHANGED = "ledger-changed";
