import { Status, type Tone } from "../../ui/states.tsx";
import { OUTCOME_NAMES, type Outcome, type RequestRecord } from "./data.ts";

const TONES: Readonly<Record<Outcome, Tone>> = { ok: "good", left: "plain", refused: "warn", failed: "bad" };

/** Codes of the interface whose name says less than a person wants to read. */
const CODES: Readonly<Record<string, string>> = {
  missing_fields: "invalid field",
  unauthorized: "key not accepted",
  model_not_found: "no such model",
  model_not_allowed: "model not allowed",
  quota_exceeded: "quota used up",
  payment_required: "points used up",
  rate_limit_exceeded: "too many requests",
  bad_gateway: "upstream failed",
  internal_error: "no healthy backend",
  client_left: "client left",
};
export const codeInWords = (code: string): string => CODES[code] ?? code.replaceAll("_", " ");

const REASONS: Readonly<Record<string, string>> = {
  only_backend: "the only backend that serves it",
  fewest_requests: "least used so far",
  session: "its session's own",
  fastest: "answers soonest",
  conversation: "the conversation is there",
  provider_asked_for: "the request asked for it",
  model_route: "first choice of the model route",
  fallback: "the one before failed",
};
export const reasonInWords = (reason: string): string => REASONS[reason] ?? reason;

export function OutcomeStatus({ record: { outcome, status, code } }: { record: RequestRecord }) {
  const word = code && outcome !== "ok" ? codeInWords(code) : OUTCOME_NAMES[outcome].toLowerCase();
  return (
    <Status tone={TONES[outcome]}>
      <span className="breaks">
        {status === 499 ? "" : `${status} `}
        {word}
      </span>
    </Status>
  );
}

export const keyInWords = ({
  key_name,
  key_prefix,
  user_email,
  user_id,
}: Pick<RequestRecord, "key_name" | "key_prefix" | "user_email" | "user_id">): string => {
  if (key_prefix) return key_name ?? `service-${key_prefix}…`;
  return user_id ? (user_email ?? "signed in") : "unknown key";
};
