import { z } from "zod";
import { defineMethod, GivenId, Timestamp } from "../../kernel/method.ts";
import { Email, Name, NewPassword, SessionResult, SignedInSession } from "./schemas.ts";

const Token = z.string().trim().min(1).max(128);

export const setPassword = defineMethod({
  name: "auth.password.set",
  summary: "Change your password; your other sessions end",
  auth: "jwt",
  params: z.object({ current_password: z.string().min(1).max(1024), new_password: NewPassword }),
  handler: ({ params, actor, caller, rooms }) =>
    rooms.accounts.changePassword(
      { userId: actor.userId, sessionId: caller.sessionId, ip: caller.ip },
      { current: params.current_password, next: params.new_password },
    ),
});

export const setName = defineMethod({
  name: "auth.name.set",
  summary: "Change the name that others see of you",
  auth: "jwt",
  params: z.object({ name: Name }),
  handler: async ({ params, actor, rooms, before }) => {
    before.name = (await rooms.accounts.people.update(actor, actor.userId, params)).name;
  },
});

export const listSessions = defineMethod({
  name: "auth.sessions.list",
  summary: "Where you are signed in, the session used last first",
  auth: "jwt",
  result: z.array(SignedInSession.extend({ current: z.boolean().describe("The session of this call") })),
  handler: async ({ actor, caller, rooms }) =>
    (await rooms.accounts.sessions(actor.userId)).map((session) => ({
      ...session,
      current: session.id === caller.sessionId,
    })),
});

export const endSessions = defineMethod({
  name: "auth.sessions.end",
  summary: "Sign out of one session, or of all others; their tokens stop working at once",
  auth: "jwt",
  params: z.object({ session_id: GivenId.optional().describe("Left out: all but the session of this call") }),
  result: z.object({ ended: z.int() }),
  handler: async ({ params, actor, caller, rooms }) => ({
    ended: await rooms.accounts.endSessions(
      actor.userId,
      params.session_id === undefined ? { except: caller.sessionId } : { only: params.session_id },
    ),
  }),
});

export const showLink = defineMethod({
  name: "auth.link.show",
  summary: "What a one-time link is for, and who made it",
  auth: "public",
  params: z.object({ token: Token }),
  result: z.object({
    kind: z.enum(["invitation", "password"]).describe("Make an account, or choose the password of one"),
    invited_by: z.string(),
    email: z.string().nullable().describe("Null: the bearer chooses"),
    name: z.string().nullable(),
    note: z.string().nullable().describe("Of who made it"),
    expires_at: Timestamp,
  }),
  handler: ({ params, caller, rooms }) => rooms.accounts.people.show(params.token, caller),
});

export const acceptLink = defineMethod({
  name: "auth.link.accept",
  summary: "Use a one-time link: choose a password, and sign in",
  auth: "public",
  params: z.object({ token: Token, password: NewPassword, email: Email.optional(), name: Name.optional() }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.accounts.people.accept(params, caller),
});
