export * as methods from "./methods.ts";
export { Email, Name, NewPassword, SessionResult, SignedInSession } from "./methods.ts";
export { emailFor } from "./people.ts";
export { Accounts, type AccountsOptions, type Session } from "./service.ts";
export { loadJwtSecret, watchSigning } from "./signing-secret.ts";
export type { UserRow } from "./store.ts";
