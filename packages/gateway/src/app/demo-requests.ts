import { type Asker, type Facet, firstIdAt, numberFor, type RecordRow } from "../rooms/requests/index.ts";
import type { UsageRow } from "../rooms/usage/index.ts";

const SURFACES: Readonly<Record<string, string>> = {
  gateway: "/v1/chat/completions",
  rpc: "chat.send",
  realtime: "realtime.start",
  video: "/v1/video/generations",
};
const FIRST_TOKEN_MS = 180;
const TOKENS_PER_SECOND = 70;
/** One in so many was refused for its pace, or failed upstream. */
const REFUSED_EVERY = 41;
const FAILED_EVERY = 29;

const FAILURES = {
  429: { code: "rate_limit_exceeded", message: "More than 10 requests a minute, the tier's limit for a key" },
  502: { code: "bad_gateway", message: "upstream 503: the model is loading" },
} as const;

/** Requests as they would have been recorded with these usage rows, and some that were not answered. */
export function requestsOf(usage: readonly UsageRow[], backend: string) {
  const facets = new Map<number, Facet>();
  const askers = new Map<number, Asker>();
  const rows: (RecordRow & { status: number })[] = [];
  const add = (row: UsageRow, place: number, status: 200 | 429 | 502) => {
    const failure = status === 200 ? null : FAILURES[status];
    const facet = {
      surface: SURFACES[row.backend] ?? row.backend,
      model: row.model,
      backend: status === 429 ? "" : backend,
      status,
      code: failure?.code ?? "",
    };
    const facetId = numberFor("facet", facet.surface, facet.model, facet.backend, status, facet.code);
    facets.set(facetId, { id: facetId, ...facet });
    const { userId, keyId, project } = row;
    const keyPrefix = keyId === null ? null : row.apiKeyId;
    const askerId = numberFor("asker", userId, keyId, null, project);
    askers.set(askerId, { id: askerId, userId, keyId, groupId: null, project, keyPrefix });
    const firstTokenMs = status === 200 ? FIRST_TOKEN_MS + ((place * 37) % 400) : null;
    const answeringMs = status === 200 ? Math.round((row.completionTokens * 1000) / TOKENS_PER_SECOND) : 25;
    const durationMs = (firstTokenMs ?? 0) + answeringMs;
    const atMs = Math.max(0, row.createdAtMs - durationMs - (status === 200 ? 0 : 1_000));
    rows.push({
      id: `${firstIdAt(atMs).slice(0, 13)}-7000-8${status}-${place.toString(16).padStart(12, "0")}`,
      askerId,
      facetId,
      status,
      attempts: status === 429 ? 0 : 1,
      queueMs: status === 429 ? 0 : 1,
      firstTokenMs,
      durationMs,
      promptTokens: status === 200 ? row.promptTokens : 0,
      completionTokens: status === 200 ? row.completionTokens : 0,
      costNanoUsd: status === 200 ? row.costNanoUsd : null,
      reason: status === 429 ? null : "only_backend",
      detail: failure && { message: failure.message },
    });
  };
  for (const [place, row] of usage.entries()) {
    add(row, place, 200);
    if (place % REFUSED_EVERY === 7) add(row, place, 429);
    if (place % FAILED_EVERY === 5) add(row, place, 502);
  }
  return { rows, facets: [...facets.values()], askers: [...askers.values()] };
}
