/** What the settling thread loads of this room: no schemas of methods, which would take more memory than all else. */
export { BillingStore } from "./store.ts";
export { Tiers } from "./tiers.ts";
