import type { UpstreamCall } from "./upstream-call.ts";

export const NO_HEADERS: Readonly<Record<string, string>> = {};
type Headers = Readonly<Record<string, string>>;

/** Says which backend served an answer, and how many were asked. */
export const answerHeaders = ({ route, attempts }: UpstreamCall, base: Headers): Headers => ({
  ...base,
  // Names may be in any script; headers may not.
  "x-service-backend": encodeURIComponent(route.name),
  "x-service-attempts": String(attempts),
});
