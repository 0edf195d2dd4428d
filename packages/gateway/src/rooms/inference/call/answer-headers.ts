import type { UpstreamCall } from "./upstream-call.ts";

const BACKEND_HEADER = "x-service-backend";
const ATTEMPTS_HEADER = "x-service-attempts";
export const NO_HEADERS: Readonly<Record<string, string>> = {};
type Headers = Readonly<Record<string, string>>;

/** Says which backend served an answer, and how many were asked. Of most answers the headers are known already. */
export function answerHeaders({ route, attempts }: UpstreamCall, base: Headers): Headers {
  const { answerHeaders: known } = route.entry;
  if (attempts === 1) {
    const found = known.get(base);
    if (found) return found;
  }
  // Names may be in any script; headers may not.
  const name = encodeURIComponent(route.name);
  const headers = { ...base, [BACKEND_HEADER]: name, [ATTEMPTS_HEADER]: String(attempts) };
  if (attempts === 1) known.set(base, headers);
  return headers;
}
