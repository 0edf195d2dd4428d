/** What changed in a node's state, so that instances tell each other little about nodes that report much. */
import { GpuReport, PendingModel, ServingModel } from "@model-gateway/protocol/agent.ts";
import { z } from "zod";
import type { NodeState } from "./state.ts";

const listChange = <Item extends z.ZodType>(item: Item) =>
  z.object({ set: z.array(item), gone: z.array(z.string()) }).optional();

export const StateChange = z.object({
  heartbeatAtMs: z.number(),
  host: z.string().optional(),
  isLeaving: z.boolean().optional(),
  gpus: z.array(GpuReport).optional(),
  besideBackends: z.array(z.string()).optional(),
  wasReady: z.array(z.string()).optional(),
  models: listChange(ServingModel),
  pending: listChange(PendingModel),
});
export type StateChange = z.infer<typeof StateChange>;

interface Named {
  model_id: string;
}

function listDifference<T extends Named>(before: readonly T[], after: readonly T[]) {
  const known = new Map(before.map((model) => [model.model_id, model]));
  const set = after.filter((model) => !Bun.deepEquals(known.get(model.model_id), model));
  for (const { model_id } of after) known.delete(model_id);
  const gone = [...known.keys()];
  return set.length + gone.length > 0 ? { set, gone } : undefined;
}

function patched<T extends Named>(list: readonly T[], change: { set: T[]; gone: string[] } | undefined): T[] {
  if (!change) return [...list];
  const models = new Map(list.map((model) => [model.model_id, model]));
  for (const id of change.gone) models.delete(id);
  for (const model of change.set) models.set(model.model_id, model);
  return [...models.values()];
}

/** Of two states of one connection. */
export const difference = (before: NodeState, after: NodeState): StateChange => ({
  heartbeatAtMs: after.heartbeatAtMs,
  ...(before.host !== after.host && { host: after.host }),
  ...(before.isLeaving !== after.isLeaving && { isLeaving: after.isLeaving }),
  ...(!Bun.deepEquals(before.gpus, after.gpus) && { gpus: after.gpus }),
  ...(!Bun.deepEquals(before.wasReady, after.wasReady) && { wasReady: after.wasReady }),
  ...(!Bun.deepEquals(before.besideBackends, after.besideBackends) && {
    besideBackends: after.besideBackends,
  }),
  models: listDifference(before.models, after.models),
  pending: listDifference(before.pending, after.pending),
});

export const withChange = (state: NodeState, { models, pending, ...fields }: StateChange): NodeState => ({
  ...state,
  ...fields,
  models: patched(state.models, models),
  pending: patched(state.pending, pending),
});
