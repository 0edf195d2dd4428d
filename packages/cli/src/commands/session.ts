import type { Client, Session } from "@model-gateway/client";
import { signInWithBrowser } from "../browser-sign-in.ts";
import { CliError, type Command, text, wholeNumber } from "../command.ts";
import { ask, askSecret } from "../prompt.ts";

async function signInWithPassword(client: Client, email: string, register: boolean): Promise<Session> {
  const password = await askSecret("Password: ");
  if (password === "") throw new CliError("the password is empty");
  return register ? client.signUp({ email, password }) : client.signIn({ email, password });
}

/** Whether people sign in there with the provider alone. */
async function hasNoPasswords(client: Client): Promise<boolean> {
  const setup = JSON.parse(await client.rest.text("/api/setup")) as { password_sign_in?: boolean };
  return setup.password_sign_in === false;
}

export const login: Command = {
  name: "login",
  summary: "Sign in; the session is kept in a file that only you can read",
  examples: [
    "model-gateway login --email ada@example.com",
    "model-gateway login --url https://models.example.org",
    "model-gateway login --browser",
    'echo "$PASSWORD" | model-gateway login --email ada@example.com',
  ],
  options: {
    email: { type: "string", help: "account to sign in with" },
    register: { type: "boolean", help: "create the account instead" },
    browser: { type: "boolean", help: "sign in with a browser, e.g. by single sign-on" },
    port: { type: "string", help: "port on 127.0.0.1 that the browser returns to (default: any free one)" },
  },
  async run({ options, output, connection }) {
    const { client, url } = connection;
    const email = text(options, "email");
    if (options.browser || (email === null && !options.register && (await hasNoPasswords(client)))) {
      const port = wholeNumber(options, "port") ?? 0;
      await signInWithBrowser({ client, url, port, say: (line) => output.note(line) });
    } else {
      const given = email ?? (await ask("Email: ", "--email"));
      await signInWithPassword(client, given, Boolean(options.register));
    }
    const { user } = client.session!;
    output.result(
      user,
      () => `Signed in at ${url} as ${user.email}${user.is_admin ? ", an administrator" : ""}`,
    );
  },
};

export const logout: Command = {
  name: "logout",
  summary: "Forget the session",
  examples: ["model-gateway logout"],
  async run({ output, connection }) {
    await connection.client.signOut();
    output.result({ ok: true }, () => "Signed out");
  },
};

export const whoami: Command = {
  name: "whoami",
  summary: "Where you are signed in, as whom, and what is left of your limits",
  examples: ["model-gateway whoami"],
  async run({ output, connection }) {
    const client = await connection.signedIn();
    const plan = await client.call("billing.plan");
    const { user } = client.session!;
    output.result({ url: connection.url, user, plan }, () => [
      `${user.email}${user.is_admin ? ", an administrator" : ""}, at ${connection.url}`,
      `Tier ${plan.current_tier}; $${plan.usage.cost_usd.toFixed(2)} and ${plan.usage.tokens} tokens this month; ${plan.points_balance} points`,
    ]);
  },
};
