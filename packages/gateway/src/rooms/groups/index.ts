import { Groups, type GroupsOptions } from "./service.ts";

export * as methods from "./methods.ts";
export { type ModelRules, modelAllowed } from "./model-rules.ts";
export type { Groups, GroupsOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    groups: Groups;
  }
}

export const createGroups = (options: GroupsOptions): Groups => new Groups(options);
