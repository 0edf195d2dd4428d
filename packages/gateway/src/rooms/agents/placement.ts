import { freeMemoryMb, gpuUtilization, type NodeState, occupyingModels } from "./state.ts";

/** A node whose driver reports nothing counts as busy. */
const UTILIZATION_UNKNOWN = 100;

export interface Candidate {
  state: NodeState;
  /** Models just ordered that the node has not reported on yet. */
  reserved: ReadonlySet<string>;
}

/** Least-loaded first: fewest models, lowest GPU utilisation, most free memory, then name, so that it is stable. */
export function byLoad(candidates: readonly Candidate[]): Candidate[] {
  const ranked = candidates.map((candidate) => {
    const { state, reserved } = candidate;
    return {
      candidate,
      modelCount: new Set([...occupyingModels(state), ...reserved]).size,
      utilization: gpuUtilization(state.gpus) ?? UTILIZATION_UNKNOWN,
      freeMb: freeMemoryMb(state.gpus),
      name: `${state.name} ${state.agentId}`,
    };
  });
  ranked.sort(
    (a, b) =>
      a.modelCount - b.modelCount ||
      a.utilization - b.utilization ||
      b.freeMb - a.freeMb ||
      (a.name < b.name ? -1 : 1),
  );
  return ranked.map(({ candidate }) => candidate);
}
