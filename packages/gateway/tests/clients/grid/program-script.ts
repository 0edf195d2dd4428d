/** What a model does that coding agents talk to: it thinks and runs a command in each of nine turns, and is done in the tenth. */
import type { Script } from "@model-gateway/testing/vendors/model.ts";

const TURNS = 9;

/** The tools that run a command, by the names that programs give them. */
const argumentsOf = (command: string): Record<string, Record<string, unknown>> => ({
  Bash: { command, description: "Say the weather" },
  bash: { command, description: "Say the weather" },
  shell: { command: ["bash", "-c", command] },
  shell_command: { command },
  exec_command: { cmd: command },
  run_shell_command: { command, description: "Say the weather" },
  // Codex offers newer models a tool that runs JavaScript.
  exec: { input: `text(await tools.exec_command({ cmd: ${JSON.stringify(command)} }))` },
});

const NAMESPACE = /^functions__/;

export const programScript: Script = ({ step, tools }) => {
  // A command that repeats itself would be taken for a loop.
  const known = argumentsOf(`echo part ${step + 1}: 21 degrees`);
  const name = tools.find((tool) => tool.replace(NAMESPACE, "") in known);
  if (name === undefined || step >= TURNS)
    return { thinking: "Nothing is missing.", text: `Done after ${step + 1} turns.` };
  return {
    thinking: `Step ${step + 1}: the tool knows this.`,
    text: `Looking at part ${step + 1}.`,
    calls: [{ name, args: known[name.replace(NAMESPACE, "")]! }],
  };
};
