import type { Keys } from "./service.ts";

export * as methods from "./methods.ts";
export {
  type GroupTerms,
  Keys,
  type KeysOptions,
  type Principal,
  payerOf,
  prefixOf,
} from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    keys: Keys;
  }
}
