import { z } from "zod";
import { type AnyRoute, defineRoute } from "../../kernel/route.ts";

export interface SetupOptions {
  registrationIsOpen(): Promise<boolean>;
  /** Registration ends with the first account, so while it is open nobody has one. */
  firstAccountOnly: boolean;
}

/** What the console's sign-in page needs to know. */
export const consoleRoutes = ({ registrationIsOpen, firstAccountOnly }: SetupOptions): AnyRoute[] => [
  defineRoute({
    method: "GET",
    path: "/api/setup",
    summary: "Whether accounts can be made, and whether this service has none yet",
    auth: "public",
    response: z.object({
      registration_open: z.boolean(),
      first_run: z.boolean().describe("Nobody has an account; the next one becomes the administrator's"),
    }),
    handler: async () => {
      const open = await registrationIsOpen();
      return { registration_open: open, first_run: open && firstAccountOnly };
    },
  }),
];
