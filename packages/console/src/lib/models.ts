import type { Model, ModelPrice } from "@model-gateway/client";
import { client } from "./client.ts";
import { type Query, useQuery } from "./query.ts";

export interface KnownModel extends Model {
  /** Undefined when no backend serves the model now: it is listed, but cannot be called. */
  price?: ModelPrice;
}

async function knownModels(): Promise<KnownModel[]> {
  const [models, prices] = await Promise.all([client.rest.models(), client.rest.prices()]);
  const byModel = new Map(prices.map((price) => [price.model, price]));
  return models.map((model) => ({ ...model, price: byModel.get(model.id) }));
}

/** Every model that the service lists, its suggestions for newcomers included. */
export const useKnownModels = (): Query<KnownModel[]> => useQuery("models", knownModels);

/** Ids of the models that a backend serves now, and of routes that have a target; undefined until they are known. */
export function useCallableModels(): Query<readonly string[]> {
  const query = useKnownModels();
  const data = query.data
    ?.filter(({ price, available }) => price !== undefined || available)
    .map(({ id }) => id);
  return { ...query, data };
}

/** The choices of a select whose value came from the address: it is among them, callable or not. */
export const withChosen = (models: readonly string[], chosen: string): readonly string[] =>
  chosen === "" || models.includes(chosen) ? models : [chosen, ...models];
