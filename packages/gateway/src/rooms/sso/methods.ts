import { z } from "zod";
import { defineMethod, GivenId, NoParams, Ok, ok, Timestamp } from "../../kernel/method.ts";

export const listIdentities = defineMethod({
  name: "auth.identities.list",
  summary: "Your accounts at the sign-in provider that sign you in here",
  auth: "jwt",
  audit: false,
  params: NoParams,
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
  result: Ok,
  handler: async ({ params, actor, rooms }) => {
    await rooms.sso.unlink(actor, params.identity_id);
    return ok;
  },
});
