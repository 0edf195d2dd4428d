/** Which models a group's keys may use. Ids are as `normalModelId` has them. */
export interface ModelRules {
  /** If false, the allow list is ignored; denials always apply. */
  enforceAllowlist: boolean;
  allowed: ReadonlySet<string>;
  denied: ReadonlySet<string>;
}

const LATEST = ":latest";

/** A normalised model id: routing treats `name` and `name:latest` alike, so the rules must, too. */
export function normalModelId(modelId: string): string {
  const lower = modelId.trim().toLowerCase();
  return lower.endsWith(LATEST) ? lower.slice(0, -LATEST.length) : lower;
}

/** Whether the group's keys may use the model. Takes the id after alias resolution. */
export function modelAllowed(rules: ModelRules | null, modelId: string): boolean {
  if (!rules) return true;
  const id = normalModelId(modelId);
  if (rules.denied.has(id)) return false;
  return !rules.enforceAllowlist || rules.allowed.has(id);
}
