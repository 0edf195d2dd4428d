import { bearerOf, type HttpRequest, jsonReply } from "@model-gateway/wire/http";
import { z } from "zod";
import { auditEntry } from "../../kernel/audit.ts";
import { basePathOf } from "../../kernel/base-path.ts";
import { fail } from "../../kernel/errors.ts";
import { defineRoute, type RefusedCall, raw } from "../../kernel/route.ts";
import { SessionResult } from "../accounts/index.ts";
import { ATTEMPT_SECONDS, type Sso } from "./service.ts";

const BODY_BYTES_MAX = 16 * 1024;
const QUERY_LENGTH_MAX = 12_000;
const COOKIE = "sign-in";
const ReturnTo = z.string().max(2_000).optional().describe("Page of the console to return to");
const Begin = z.object({ url: z.string().describe("The provider's page; send the browser there") });
const Finish = z.object({
  session: SessionResult.nullable().describe(
    "Null when the account was linked: its owner is signed in already",
  ),
  return_to: z.string(),
});

/** Repeated headers were joined with commas. */
const cookieOf = (request: HttpRequest): string | null =>
  new Bun.CookieMap((request.header("cookie") ?? "").replaceAll(",", ";")).get(COOKIE);

function setCookie(sso: Sso, value: string, maxAgeSeconds: number): Record<string, string> {
  const secure = sso.publicUrl?.startsWith("https:") ? "; Secure" : "";
  return {
    "set-cookie": `${COOKIE}=${value}; Path=${basePathOf(sso.publicUrl)}/api/auth/oidc; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Lax${secure}`,
    "cache-control": "no-store",
  };
}

/** The cookie's host must be the one that the provider redirects to. */
function requirePublicName({ publicUrl }: Sso, request: HttpRequest): void {
  if (publicUrl !== null && request.header("host")?.toLowerCase() !== new URL(publicUrl).host)
    fail("forbidden", `Open the service at ${publicUrl} to sign in with the provider`);
}

async function begin(
  { request, requestId, caller, rooms: { sso } }: Omit<RefusedCall, "principal">,
  asked: Parameters<Sso["begin"]>[0],
) {
  requirePublicName(sso, request);
  const { url, sealed } = await sso.begin(asked, caller);
  const headers = setCookie(sso, sealed, ATTEMPT_SECONDS);
  return jsonReply(JSON.stringify({ url }), requestId, 200, headers);
}

export const startSignIn = defineRoute({
  method: "POST",
  path: "/api/auth/oidc/start",
  summary: "Begin to sign in with the provider; the answer's cookie binds it to the browser",
  auth: "public",
  body: z.object({
    return_to: ReturnTo,
    setup_token: z.string().max(128).optional(),
    invitation: z.string().max(128).optional().describe("Lets someone in who has no account yet"),
  }),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(Begin),
  handler: ({ body: { return_to: returnTo, setup_token: setupToken, invitation }, ...call }) =>
    begin(call, { returnTo, setupToken, invitation }),
});

export const startLink = defineRoute({
  method: "POST",
  path: "/api/auth/oidc/link",
  summary: "Begin to link your account to the one that you have at the provider",
  auth: "jwt",
  body: z.object({ return_to: ReturnTo }),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(Begin),
  handler: ({ body, actor, ...call }) => begin(call, { returnTo: body.return_to, linksTo: actor.userId }),
});

export const finishSignIn = defineRoute({
  method: "POST",
  path: "/api/auth/oidc/finish",
  summary:
    "End a sign-in with what the provider added to the address of the page that it returned to; a link needs the bearer of its account, too",
  auth: "public",
  body: z.object({
    query: z.string().max(QUERY_LENGTH_MAX).describe("Of that address, e.g. code=…&state=…"),
  }),
  bodyBytesMax: BODY_BYTES_MAX,
  response: raw(Finish),
  handler: async ({ body, request, requestId, caller, rooms: { sso, audit } }) => {
    requirePublicName(sso, request);
    const given = { query: body.query, sealed: cookieOf(request), bearer: bearerOf(request) };
    const { session, returnTo } = await sso.finish(given, caller);
    const answer = Finish.parse({ session, return_to: returnTo });
    // Recorded here, because the person is known only now. A link was recorded when its owner began it.
    if (answer.session)
      await audit.record(auditEntry({ action: "auth.oidc", caller, requestId }, {}, answer.session));
    return jsonReply(JSON.stringify(answer), requestId, 200, setCookie(sso, "", 0));
  },
});
