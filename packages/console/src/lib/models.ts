import { abilitiesOf, type Result } from "@model-gateway/client";
import { api } from "./api.ts";
import { type Query, useQuery } from "./query.ts";

export type KnownModel = Result<"models.list">[number];

/** Every model and model route that there is a backend for, with what each can do. */
export const useKnownModels = (): Query<KnownModel[]> =>
  useQuery("models", async () =>
    (await api("models.list")).map((model) => ({ ...model, capabilities: abilitiesOf(model) })),
  );

/** Ids of the models that can be called now, perhaps only those with a capability; undefined until they are known. */
export function useCallableModels(capability?: string): Query<readonly string[]> {
  const query = useKnownModels();
  const data = query.data
    ?.filter(({ available, capabilities }) => available && (!capability || capabilities.includes(capability)))
    .map(({ id }) => id);
  return { ...query, data };
}

/** Of these ids, the ones that no backend and no route has; none while the models are not known. */
export function useUnknownModels(ids: readonly string[]): readonly string[] {
  const known = useKnownModels().data;
  if (!known) return [];
  const names = new Set(known.map(({ id }) => id.toLowerCase()));
  return ids.filter((id) => !names.has(id.toLowerCase()));
}

/** The choices of a picker whose value came from the address: it is among them, callable or not. */
export const withChosen = (models: readonly string[], chosen: string): readonly string[] =>
  chosen === "" || models.includes(chosen) ? models : [chosen, ...models];
