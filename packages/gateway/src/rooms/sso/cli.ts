import { calculatePKCECodeChallenge } from "oauth4webapi";
import { z } from "zod";
import { isoTime } from "../../kernel/clock.ts";
import type { Actor, CallSource } from "../../kernel/context.ts";
import { fail } from "../../kernel/errors.ts";
import { constantTimeEqual } from "../../kernel/ids.ts";
import type { Session } from "../accounts/index.ts";
import { Sealed } from "./sealed.ts";
import type { SsoOptions } from "./service.ts";
import type { IdentityStore } from "./store.ts";

/** Short, because the browser passes the code to the command line at once. */
const CODE_SECONDS = 60;
const TRIES_PER_IP = 20;

const Grant = z.object({
  id: z.string(),
  userId: z.string(),
  /** The browser's session; its approval ends with it. */
  sessionId: z.string().optional(),
  challenge: z.string(),
});
type Grant = z.infer<typeof Grant>;

/** Sign-in of the command line through the browser: a code that works once, and only with its verifier. */
export class CliSignIns {
  readonly #grants: Sealed<Grant>;

  constructor(readonly options: SsoOptions & { store: IdentityStore }) {
    this.#grants = new Sealed({ ...options, schema: Grant, purpose: "cli sign-ins", seconds: CODE_SECONDS });
  }

  async approve({ userId }: Actor, sessionId: string | undefined, challenge: string): Promise<string> {
    return this.#grants.seal({ id: this.options.ids.uuid(), userId, sessionId, challenge });
  }

  async redeem({ code, verifier }: { code: string; verifier: string }, source: CallSource): Promise<Session> {
    const { accounts, store, clock } = this.options;
    const grant = await this.#grants.open(code);
    // Check the verifier first, so that someone without it cannot use up a stolen code.
    if (!grant || !constantTimeEqual(await calculatePKCECodeChallenge(verifier), grant.challenge)) {
      await accounts.limit("cli", source.ip, TRIES_PER_IP);
      refuseCode();
    }
    if (!(await store.use(grant.id, isoTime(clock.now() + 2 * CODE_SECONDS * 1000)))) refuseCode();
    return accounts.startSessionOf(grant, source);
  }
}

function refuseCode(): never {
  fail("auth_required", "This sign-in took too long, was used before, or was begun elsewhere; log in again");
}
