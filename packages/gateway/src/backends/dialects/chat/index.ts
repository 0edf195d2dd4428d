import { apiBase, type Dialect, modelsOfListing } from "../dialect.ts";

/** Chat completions, which is what the gateway speaks inside. */
export const chat: Dialect = {
  name: "chat",
  base: (url) => apiBase(url),
  path: () => "/chat/completions",
  auth: "bearer",
  listing: { path: "/models", models: modelsOfListing },
};
