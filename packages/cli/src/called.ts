import type { Env } from "./secrets.ts";

/** How people call this program where they read what it says: what they copy must work there, and run nothing else. */
export function callOf(env: Env, program = Bun.main): string {
  // `npx` of what is installed; of a tarball there is no name to call it by again.
  if (env.npm_command === "exec")
    return program.includes("/_npx/") ? "model-gateway" : "npx --no model-gateway";
  if (Bun.which("model-gateway", { PATH: env.PATH ?? "" }) !== null) return "model-gateway";
  const [root] = program.split("/packages/cli/src/");
  return root !== program ? `${root}/deploy/model-gateway` : "model-gateway";
}

let own: string | null = null;

/** Hints are written with the bare name. */
export function asCalled(text: string): string {
  own ??= callOf(process.env);
  return text.replaceAll(/(?<![\w/@.-])model-gateway (?=[a-z<]|--[a-z])/g, `${own} `);
}
