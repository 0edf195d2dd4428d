import { client } from "./client.ts";

/** What the service tells those who are not signed in yet. */
export interface Setup {
  registration_open: boolean;
  first_run: boolean;
  setup_link_needed: boolean;
  password_sign_in: boolean;
  provider: string | null;
}

export const loadSetup = async () => JSON.parse(await client.rest.text("/api/setup")) as Setup;
