import { z } from "zod";
import { Timestamp } from "../../kernel/method.ts";

export const Email = z.string().trim().toLowerCase().max(254).pipe(z.email("must be an email address"));
export const NewPassword = z
  .string()
  .min(8, "must have at least 8 characters")
  .max(128, "must have at most 128 characters");
export const Name = z.string().trim().min(1).max(80);
export const User = z.object({ id: z.uuid(), email: z.string(), name: z.string() });

export const SignedInSession = z.object({
  id: z.uuid(),
  ip: z.string().nullable(),
  user_agent: z.string().nullable(),
  created_at: Timestamp,
  last_used_at: Timestamp.describe("When its tokens were last renewed"),
});

export const SessionResult = z.object({
  access_token: z.string(),
  refresh_token: z.string(),
  token_type: z.literal("Bearer"),
  expires_in: z.int().describe("Lifetime of the access token in seconds"),
  user: User.extend({ is_admin: z.boolean() }),
});

export const Person = z.object({
  id: z.uuid(),
  email: z.string(),
  name: z.string(),
  is_admin: z.boolean(),
  tier: z.string(),
  disabled: z.boolean(),
  email_verified: z
    .boolean()
    .describe("The sign-in provider or an administrator says that the address is the owner's"),
  created_at: Timestamp,
  last_seen_at: Timestamp.nullable().describe("When a session of theirs was last renewed"),
  active_keys: z.int(),
});

export const Link = z.object({
  id: z.uuid(),
  token: z.string().describe("For the link; it cannot be shown again"),
  expires_at: Timestamp,
});

export const PendingLink = z.object({
  id: z.uuid(),
  kind: z.enum(["invitation", "password"]),
  email: z.string().nullable(),
  tier: z.string().nullable(),
  is_admin: z.boolean(),
  group_name: z.string().nullable(),
  note: z.string().nullable(),
  created_by: z.string().describe("Name of the administrator"),
  created_at: Timestamp,
  expires_at: Timestamp,
});
