import { z } from "zod";
import { defineMethod } from "../../kernel/method.ts";
import { Email, Name, NewPassword, SessionResult, User } from "./schemas.ts";

export const register = defineMethod({
  name: "auth.register",
  summary: "Create an account and sign in; the first account becomes the administrator",
  auth: "public",
  params: z.object({
    email: Email,
    password: NewPassword,
    name: Name.optional(),
    setup_token: z
      .string()
      .max(128)
      .optional()
      .describe("From the setup link; only the first account may need it"),
  }),
  result: SessionResult,
  handler: ({ params: { setup_token, ...account }, caller, rooms }) =>
    rooms.accounts.register({ ...account, setupToken: setup_token }, caller),
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
  handler: ({ params, caller, rooms }) => rooms.accounts.login(params, caller),
});

export const refresh = defineMethod({
  name: "auth.refresh",
  summary: "Exchange a refresh token, which works once, for a fresh pair",
  auth: "public",
  audit: false,
  params: z.object({ refresh_token: z.string().min(1).max(512) }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.refresh(params.refresh_token, caller),
});

export const logout = defineMethod({
  name: "auth.logout",
  summary: "Sign out: ends the session of a refresh token; its tokens stop working at once",
  auth: "public",
  params: z.object({ refresh_token: z.string().min(1).max(512) }),
  handler: ({ params, caller, rooms }) => rooms.accounts.signOut(params.refresh_token, caller.ip),
});

export const me = defineMethod({
  name: "auth.me",
  summary: "The signed-in account",
  auth: "jwt",
  result: User,
  handler: ({ actor }) => ({ id: actor.userId, email: actor.email, name: actor.name }),
});

export * from "./people-methods.ts";
export * from "./session-methods.ts";
