import { z } from "zod";
import { defineMethod, NoParams, Ok, ok } from "../../kernel/method.ts";

const Email = z.string().trim().toLowerCase().max(254).pipe(z.email("must be an email address"));
const NewPassword = z
  .string()
  .min(8, "must have at least 8 characters")
  .max(128, "must have at most 128 characters");
const User = z.object({ id: z.uuid(), email: z.string(), name: z.string() });

const SessionResult = z.object({
  access_token: z.string(),
  refresh_token: z.string(),
  token_type: z.literal("Bearer"),
  expires_in: z.int().describe("Lifetime of the access token in seconds"),
  user: User.extend({ is_admin: z.boolean() }),
});

export const register = defineMethod({
  name: "auth.register",
  summary: "Create an account and sign in; the first account becomes the administrator",
  auth: "public",
  params: z.object({
    email: Email,
    password: NewPassword,
    name: z.string().trim().min(1).max(80).optional(),
  }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.register(params, caller.ip),
});

export const login = defineMethod({
  name: "auth.login",
  summary: "Sign in with email and password",
  auth: "public",
  params: z.object({
    email: z.string().trim().toLowerCase().min(1).max(254),
    password: z.string().min(1).max(1024),
  }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.login(params, caller.ip),
});

export const refresh = defineMethod({
  name: "auth.refresh",
  summary: "Exchange a refresh token, which works once, for a fresh pair",
  auth: "public",
  params: z.object({ refresh_token: z.string().min(1).max(512) }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.refresh(params.refresh_token, caller.ip),
});

export const logout = defineMethod({
  name: "auth.logout",
  summary: "Sign out: the session's refresh tokens no longer work; its access token lapses within 15 minutes",
  auth: "public",
  params: z.object({ refresh_token: z.string().min(1).max(512) }),
  result: Ok,
  handler: async ({ params, caller, rooms }) => {
    await rooms.accounts.signOut(params.refresh_token, caller.ip);
    return ok;
  },
});

export const me = defineMethod({
  name: "auth.me",
  summary: "The signed-in account",
  auth: "jwt",
  params: NoParams,
  result: User,
  handler: ({ actor }) => ({ id: actor.userId, email: actor.email, name: actor.name }),
});
