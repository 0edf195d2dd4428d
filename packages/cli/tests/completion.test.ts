import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onPty, openShell, type Shell } from "./support.ts";

let shell: Shell;
beforeAll(() => {
  shell = openShell();
});
afterAll(() => shell.end());

async function scriptFor(name: string): Promise<string> {
  const { out, code } = await shell.run(["completion", name]);
  expect(code).toBe(0);
  const file = join(shell.dir, `completion.${name}`);
  writeFileSync(file, out);
  return file;
}

/** Two words completed with the tab key, as a person does it; the second one only within its command. */
async function completed(command: string[], setUp: string): Promise<string> {
  const env = { PATH: process.env.PATH ?? "", HOME: shell.dir, PS1: "$ ", ZDOTDIR: shell.dir };
  const { out } = await onPty({
    command,
    cwd: shell.dir,
    env,
    typed: [
      { after: "$ ", text: `${setUp}; echo set-up-$((1 + 1))\r` },
      { after: "set-up-2", text: "model-gateway doc\t" },
      { after: "model-gateway doctor", text: "\x15model-gateway keys rev\t" },
      { after: "model-gateway keys revoke", text: "\x15exit\r" },
    ],
  });
  return out;
}

describe("completion scripts load in their shells and complete commands and their actions", () => {
  test("bash", async () => {
    const out = await completed(["bash", "--norc", "--noprofile", "-i"], `source ${await scriptFor("bash")}`);
    expect(out).toContain("model-gateway keys revoke");
  });

  test.skipIf(!Bun.which("zsh"))("zsh", async () => {
    const setUp = `autoload -Uz compinit; compinit -u -d ${shell.dir}/dump; source ${await scriptFor("zsh")}`;
    const out = await completed(["zsh", "-f", "-i"], setUp);
    expect(out).toContain("model-gateway keys revoke");
  });

  test.skipIf(!Bun.which("zsh"))("zsh, from a directory of functions", async () => {
    const functions = join(shell.dir, "functions");
    mkdirSync(functions);
    writeFileSync(join(functions, "_model-gateway"), await Bun.file(await scriptFor("zsh")).text());
    const setUp = `fpath=(${functions} $fpath); autoload -Uz compinit; compinit -u -d ${shell.dir}/dump2`;
    const out = await completed(["zsh", "-f", "-i"], setUp);
    expect(out).toContain("model-gateway keys revoke");
  });

  test.skipIf(!Bun.which("fish"))("fish", async () => {
    const file = await scriptFor("fish");
    const ask = (line: string) =>
      Bun.spawnSync(["fish", "--no-config", "-c", `source ${file}; complete -C '${line}'`], {
        env: { PATH: process.env.PATH ?? "", HOME: shell.dir },
      }).stdout.toString();
    expect(ask("model-gateway doc")).toStartWith("doctor\t");
    expect(ask("model-gateway keys rev")).toBe("revoke\n");
    expect(ask("model-gateway keys --proj")).toStartWith("--project");
  });
});
