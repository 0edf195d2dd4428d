export { isGroupInvitation } from "./invitations.ts";
export * as methods from "./methods.ts";
export { type ModelRules, modelAllowed, normalModelId } from "./model-rules.ts";
export { Groups, type GroupsOptions } from "./service.ts";
