/** What the settling thread loads of this room: no schemas of methods, which would take more memory than all else. */
export { memberId, NANO_PER_USD, utcMonth, WHOLE_USER } from "./rows.ts";
export { UsageStore } from "./store.ts";
export { Sums } from "./sums.ts";
