/** Which models a group's keys may use. Ids are as `normalModelId` has them. */
export interface ModelRules {
  /** When false, the allow list restricts nothing; denials hold in any case. */
  enforceAllowlist: boolean;
  allowed: ReadonlySet<string>;
  denied: ReadonlySet<string>;
}

const LATEST = ":latest";

/** One spelling of a model id: routing treats `name` and `name:latest` as one, so rules must, too. */
export function normalModelId(modelId: string): string {
  const lower = modelId.trim().toLowerCase();
  return lower.endsWith(LATEST) ? lower.slice(0, -LATEST.length) : lower;
}

/** Whether the group lets its keys use the model; ask with the id that is routed to, after aliases. */
export function modelAllowed(rules: ModelRules | null, modelId: string): boolean {
  if (!rules) return true;
  const id = normalModelId(modelId);
  if (rules.denied.has(id)) return false;
  return !rules.enforceAllowlist || rules.allowed.has(id);
}
