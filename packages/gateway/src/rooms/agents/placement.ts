import type { EstimateResult } from "@model-gateway/protocol/agent.ts";
import { gpuUtilization, type NodeState, occupyingModels } from "./state.ts";

/** A node whose driver reports nothing counts as busy. */
const UTILIZATION_UNKNOWN = 100;

export interface Candidate {
  state: NodeState;
  /** Models just ordered that the node has not reported on yet. */
  reserved: ReadonlySet<string>;
}

/** A node's estimate for a model that it does not have; both null: it cannot tell. */
export type Fit = Candidate & EstimateResult;

/** Whether there is room for the model; assumed if the node cannot tell. */
export const hasRoom = ({ estimate, room_mb }: EstimateResult): boolean =>
  estimate === null || room_mb === null || room_mb >= estimate.total_mb;

/** Sorts by most memory left after the model, lowest GPU utilisation, fewest models, then name for a stable order. */
export function byRoom(fits: readonly Fit[]): Fit[] {
  const ranked = fits.map((fit) => {
    const { state, reserved, estimate, room_mb } = fit;
    return {
      fit,
      leftMb: (room_mb ?? 0) - (estimate?.total_mb ?? 0),
      utilization: gpuUtilization(state.gpus) ?? UTILIZATION_UNKNOWN,
      modelCount: new Set([...occupyingModels(state), ...reserved]).size,
      name: `${state.name} ${state.agentId}`,
    };
  });
  ranked.sort(
    (a, b) =>
      b.leftMb - a.leftMb ||
      a.utilization - b.utilization ||
      a.modelCount - b.modelCount ||
      (a.name < b.name ? -1 : 1),
  );
  return ranked.map(({ fit }) => fit);
}

/** Why a model fits nowhere, in figures. */
export function refusalOf(modelId: string, fits: readonly Fit[]): string {
  const figure = (mb: number | null) => mb?.toLocaleString("en-US", { maximumFractionDigits: 0 }) ?? "?";
  const rooms = fits.slice(0, 8).map(({ state, estimate, room_mb }) => {
    const { weights_mb, cache_mb, overhead_mb, total_mb } = estimate!;
    return `${state.name} has room for ${figure(room_mb)} of ${figure(total_mb)} MB (weights ${figure(weights_mb)}, cache ${figure(cache_mb)}, overhead ${figure(overhead_mb)})`;
  });
  return `${modelId} fits on no node: ${rooms.join("; ")}; stop a model, lower \`context_tokens\` or \`slots\`, or name a node to try it there`;
}
