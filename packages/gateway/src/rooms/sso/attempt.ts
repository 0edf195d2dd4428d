import { z } from "zod";

/** How long someone may take at the provider. */
export const ATTEMPT_SECONDS = 600;

export const Attempt = z.object({
  id: z.string(),
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  returnTo: z.string(),
  /** Links the provider's account to this one instead of signing in. */
  linksTo: z.string().optional(),
  setupToken: z.string().optional(),
  /** An invitation of this service, or to a group: it lets a newcomer in. */
  invitation: z.string().optional(),
});

/** One sign-in on its way to the provider and back, sealed in a cookie of the browser that began it. */
export type Attempt = z.infer<typeof Attempt>;
