import { z } from "zod";
import type { CallSource } from "../../kernel/context.ts";
import { type AnyRoute, defineRoute } from "../../kernel/route.ts";
import type { Hosts } from "../hosts.ts";

interface SetupOptions {
  hosts: Hosts;
  registrationIsOpen(): Promise<boolean>;
  /** Registration closes after the first account, so while it is open there is none. */
  firstAccountOnly(): boolean;
  /** Whether the first account can be made from there only with the setup link. */
  needsSetupLink(source: CallSource): Promise<boolean>;
  passwordSignIn: boolean;
  provider: string | null;
}

export const consoleRoutes = (setup: SetupOptions): AnyRoute[] => [
  defineRoute({
    method: "GET",
    path: "/api/setup",
    summary: "Whether accounts can be made, and whether this service has none yet",
    auth: "public",
    response: z.object({
      registration_open: z.boolean(),
      first_run: z.boolean().describe("Nobody has an account; the next one becomes the administrator's"),
      setup_link_needed: z
        .boolean()
        .describe("The first account can be made only with the link that the start printed"),
      password_sign_in: z.boolean(),
      provider: z.string().nullable().describe("The words on the button of the sign-in provider"),
    }),
    handler: async ({ request, caller }) => {
      const refusal = setup.hosts.refusal(request);
      if (refusal) throw refusal;
      const open = await setup.registrationIsOpen();
      return {
        registration_open: open,
        first_run: open && setup.firstAccountOnly(),
        setup_link_needed: await setup.needsSetupLink(caller),
        password_sign_in: setup.passwordSignIn,
        provider: setup.provider,
      };
    },
  }),
];
