/** Who pays for a request, and by which limits. */
export interface Payer {
  userId: string;
  keyId: string | null;
  /** `api_key_id` of the usage row: the key's prefix, or `jwt-<user-uuid>`. */
  attribution: string;
  /** Null on JWT surfaces: they have no project window. */
  project: string | null;
  /** Set for a group key: the group's pool pays, by the member's multiplier. */
  groupId: string | null;
  /** The member's cost multiplier in millionths; `MULTIPLIER_ONE` where no group is involved. */
  costMultiplierMicros: number;
  /** Requests a minute that all keys of the group may make together; null: no ceiling. */
  rpmCeiling: number | null;
  /** Null where the key has none, and on JWT surfaces. */
  keyLimits: KeyLimits | null;
  tier: string;
}

/** Limits of one key, beside those of its user's tier and of its group; null: no limit. */
export interface KeyLimits {
  monthlyNanoUsd: number | null;
  totalNanoUsd: number | null;
  /** What its owner may spend in a month with all keys of its group. */
  memberNanoUsd: number | null;
  requestsPerMinute: number | null;
  tokensPerMinute: number | null;
}

export const MULTIPLIER_ONE = 1_000_000;
