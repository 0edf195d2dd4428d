import { apiBase } from "../base-url.ts";
import type { Dialect } from "../dialect.ts";
import { modelsOfListing } from "../listing.ts";

/** Chat completions, which is what the gateway speaks inside. */
export const chat: Dialect = {
  name: "chat",
  base: (url) => apiBase(url),
  path: () => "/chat/completions",
  auth: "bearer",
  listing: { path: "/models", models: modelsOfListing },
};
