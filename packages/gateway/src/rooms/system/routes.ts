import { z } from "zod";
import { Answer, defineRoute } from "../../kernel/route.ts";

const Health = z.object({
  status: z.string(),
  version: z.string(),
  build_hash: z.string(),
  models: z.int().describe("Number of routable models"),
  providers: z.int().describe("Number of listed providers"),
});

const health = (path: string, summary: string) =>
  defineRoute({
    method: "GET",
    path,
    summary,
    auth: "public",
    response: Health,
    handler: ({ rooms }) => rooms.system.health(),
  });

export const v1Health = health("/v1/health", "Liveness, version and build");
export const apiHealth = health("/api/health", "Same as /v1/health");
export const healthz = health("/healthz", "Same as /v1/health");

const Readiness = Health.extend({
  usage_journal: z
    .object({ rows: z.int(), bytes: z.int(), stalled_seconds: z.int() })
    .describe("Usage that waits for the database"),
});

export const readyz = defineRoute({
  method: "GET",
  path: "/readyz",
  summary:
    "Same as /v1/health, with `usage_journal` added, and 503 with status `draining` while the process stops",
  auth: "public",
  response: Readiness,
  handler: async ({ rooms: { system } }) => {
    const body = await system.readiness();
    return system.draining ? new Answer(503, { ...body, status: "draining" }) : body;
  },
});
