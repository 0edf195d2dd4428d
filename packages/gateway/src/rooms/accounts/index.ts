import { Accounts, type AccountsOptions } from "./service.ts";

export * as methods from "./methods.ts";
export type { Accounts, AccountsOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    accounts: Accounts;
  }
}

export const createAccounts = (options: AccountsOptions): Accounts => new Accounts(options);
