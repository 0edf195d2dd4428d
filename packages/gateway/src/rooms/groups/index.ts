import type { Groups } from "./service.ts";

export { isGroupInvitation } from "./invitations.ts";
export * as methods from "./methods.ts";
export { type ModelRules, modelAllowed, normalModelId } from "./model-rules.ts";
export { Groups, type GroupsOptions } from "./service.ts";

declare module "../../kernel/context.ts" {
  interface Rooms {
    groups: Groups;
  }
}
