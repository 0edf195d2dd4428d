import { CliError, type Command, text } from "../command.ts";
import { ask, askSecret } from "../prompt.ts";

export const login: Command = {
  name: "login",
  summary: "Sign in; the session is kept in a file that only you can read",
  examples: [
    "model-gateway login --email ada@example.com",
    "model-gateway login --url https://models.example.org",
    'echo "$PASSWORD" | model-gateway login --email ada@example.com',
  ],
  options: {
    email: { type: "string", help: "account to sign in with" },
    register: { type: "boolean", help: "create the account instead" },
  },
  async run({ options, output, connection }) {
    const email = text(options, "email") ?? (await ask("Email: ", "--email"));
    const password = await askSecret("Password: ");
    if (password === "") throw new CliError("the password is empty");
    const { client } = connection;
    const { user } = await (options.register
      ? client.signUp({ email, password })
      : client.signIn({ email, password }));
    output.result(
      user,
      () => `Signed in at ${connection.url} as ${user.email}${user.is_admin ? ", an administrator" : ""}`,
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
