/** What the settling thread loads of this room. It must not load the methods' schemas, which take much memory. */
export { BillingStore, Tiers } from "./store.ts";
