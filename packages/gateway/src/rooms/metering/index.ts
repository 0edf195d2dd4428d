import type { Metering } from "./types.ts";

export type { Admission, AdmitOptions, Estimate, FinalUsage, Metering } from "./types.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    metering: Metering;
  }
}
