export * as methods from "./methods.ts";
export { emailFor } from "./people.ts";
export { Email, Name, NewPassword, SessionResult } from "./schemas.ts";
export { Accounts, type AccountsOptions, type Session } from "./service.ts";
export { loadJwtSecret } from "./signing-secret.ts";
export { watchSigning } from "./signing-watch.ts";
export type { UserRow } from "./store.ts";
