import type { Command, Invocation } from "../command.ts";

/** The runtime reads this once, before any code runs; without it 256 streams are the most at a time. */
const OUTGOING_LIMIT = { BUN_CONFIG_MAX_HTTP_REQUESTS: "65336" };
/** An executable's files lie in a folder that exists only inside it; on Windows it has a drive. */
const isCompiled = /^(\/\$bunfs\/|[a-z]:[\\/]~BUN[\\/])/i.test(Bun.main);

export const serve = {
  name: "serve",
  summary: "Run the service",
  examples: ["model-gateway serve", "SERVICE_PORT=9000 model-gateway serve", "model-gateway serve --help"],
  passThrough: true,
  async run({ words }: Pick<Invocation, "words">) {
    const limitIsSet = process.env.BUN_CONFIG_MAX_HTTP_REQUESTS !== undefined;
    if (limitIsSet) {
      process.argv = [process.argv[0]!, "serve", ...words];
      await import("@model-gateway/gateway/main.ts");
      return;
    }
    const self = isCompiled ? [] : [Bun.main];
    const child = Bun.spawn([process.execPath, ...self, "serve", ...words], {
      env: { ...process.env, ...OUTGOING_LIMIT },
      stdio: ["inherit", "inherit", "inherit"],
    });
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => child.kill(signal));
    process.exitCode = await child.exited;
  },
} satisfies Command;
