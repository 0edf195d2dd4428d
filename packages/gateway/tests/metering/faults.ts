export const FAULTS = ["dies before the commit", "dies after the commit", "hangs after the commit"] as const;
export type Fault = (typeof FAULTS)[number];
