import type { Command, Invocation } from "../command.ts";
import { hasRuntimeOptions, startAgain } from "./runtime.ts";

/** An executable's files lie in a folder that exists only inside it; on Windows it has a drive. */
const isCompiled = /^(\/\$bunfs\/|[a-z]:[\\/]~BUN[\\/])/i.test(Bun.main);

export const serve = {
  name: "serve",
  summary: "Run the service",
  examples: ["model-gateway serve", "SERVICE_PORT=9000 model-gateway serve", "model-gateway serve --help"],
  passThrough: true,
  async run({ words }: Pick<Invocation, "words">) {
    if (!hasRuntimeOptions()) await startAgain([...(isCompiled ? [] : [Bun.main]), "serve", ...words]);
    process.argv = [process.argv[0]!, "serve", ...words];
    await import("@model-gateway/gateway/main.ts");
  },
} satisfies Command;
