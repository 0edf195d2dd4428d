/** What the settling thread loads of this room. It must not load the methods' schemas, which take much memory. */
export { Sums } from "./batch.ts";
export { memberId, NANO_PER_USD, utcMonth, WHOLE_USER } from "./rows.ts";
export { UsageStore } from "./store.ts";
