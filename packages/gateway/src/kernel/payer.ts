export interface Payer {
  userId: string;
  keyId: string | null;
  /** `api_key_id` of the usage row: the key's prefix, or `jwt-<user-uuid>`. */
  attribution: string;
  /** Null on JWT surfaces, which have no projects. */
  project: string | null;
  /** For a group key: the group's pool pays, times the member's multiplier. */
  groupId: string | null;
  /** The member's cost multiplier in millionths; `MULTIPLIER_ONE` without a group. */
  costMultiplierMicros: number;
  /** Requests per minute of all the group's keys together; null: no ceiling. */
  rpmCeiling: number | null;
  keyLimits: KeyLimits | null;
  tier: string;
}

/** Limits of one key, besides those of its user's tier and its group; null: no limit. */
export interface KeyLimits {
  monthlyNanoUsd: number | null;
  totalNanoUsd: number | null;
  /** Monthly limit of its owner over all keys of its group. */
  memberNanoUsd: number | null;
  requestsPerMinute: number | null;
  tokensPerMinute: number | null;
}

export const MULTIPLIER_ONE = 1_000_000;
