import { z } from "zod";
import { defineMethod, GivenId, Timestamp } from "../../kernel/method.ts";
import { SessionResult } from "../accounts/index.ts";

export const listIdentities = defineMethod({
  name: "auth.identities.list",
  summary: "Your accounts at the sign-in provider that sign you in here",
  auth: "jwt",
  result: z.array(
    z.object({
      id: z.uuid(),
      issuer: z.string(),
      email: z.string().nullable().describe("As the provider gave it last"),
      created_at: Timestamp,
      last_used_at: Timestamp,
    }),
  ),
  handler: ({ actor, rooms }) => rooms.sso.identities(actor),
});

export const removeIdentity = defineMethod({
  name: "auth.identities.remove",
  summary: "Unlink an account at the sign-in provider; sessions that it began go on",
  auth: "jwt",
  params: z.object({ identity_id: GivenId }),
  handler: ({ params, actor, rooms }) => rooms.sso.unlink(actor, params.identity_id),
});

export const approveCli = defineMethod({
  name: "auth.cli.approve",
  summary: "Let a command line sign in as you; the code works once, for a minute, and only there",
  auth: "jwt",
  params: z.object({
    challenge: z
      .string()
      .regex(/^[\w-]{43}$/, "must be the SHA-256 of the verifier in base64url")
      .describe("S256 challenge of RFC 7636 for the verifier that the command line keeps"),
  }),
  result: z.object({ code: z.string() }),
  handler: async ({ params, actor, caller, rooms }) => ({
    code: await rooms.sso.cli.approve(actor, caller.sessionId, params.challenge),
  }),
});

export const redeemCli = defineMethod({
  name: "auth.cli.redeem",
  summary: "Sign in with a code of auth.cli.approve and the verifier that it was made for",
  auth: "public",
  params: z.object({
    code: z.string().min(1).max(4_000),
    verifier: z.string().regex(/^[\w.~-]{43,128}$/, "must be a code verifier of RFC 7636"),
  }),
  result: SessionResult,
  handler: ({ params, caller, rooms }) => rooms.sso.cli.redeem(params, caller),
});
