import type { Principal as KeyHolder } from "./service.ts";

export { type ModelTerms, modelRefusal } from "./limits.ts";
export * as methods from "./methods.ts";
export {
  type GroupTerms,
  Keys,
  type KeysOptions,
  ownerOf,
  type Principal,
  payerOf,
  prefixOf,
} from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Principal extends KeyHolder {}
}
