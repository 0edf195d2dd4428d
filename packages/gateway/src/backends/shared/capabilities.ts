import type { BackendConfig, CapabilityName } from "../contract.ts";

/** The operator's list decides; without one, nothing is ruled out. */
export const declares = ({ capabilities }: BackendConfig, capability: CapabilityName): boolean =>
  !capabilities?.length || capabilities.includes(capability);
