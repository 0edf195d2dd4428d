import type { Requests } from "./service.ts";

export { blocksOf } from "./blocks.ts";
export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { type Asker, type Facet, firstIdAt, numberFor, type RecordRow, Rows } from "./rows.ts";
export { Requests, type RequestsOptions } from "./service.ts";
export { RequestStore } from "./store.ts";
export { Sums } from "./sums.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    requests: Requests;
  }
}
