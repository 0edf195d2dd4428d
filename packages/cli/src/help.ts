import manifest from "../package.json" with { type: "json" };
import { asCalled } from "./called.ts";
import type { Command } from "./command.ts";
import { COMMANDS, COMMON_OPTIONS } from "./commands/index.ts";

const columns = (rows: readonly (readonly [string, string])[]) => {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join("\n");
};

const optionRows = (options: NonNullable<Command["options"]>): [string, string][] =>
  Object.entries(options).map(([name, { type, short, help }]) => [
    `${short ? `-${short}, ` : ""}--${name}${type === "string" ? " <value>" : ""}`,
    help ?? "",
  ]);

export function overview(): string {
  return asCalled(`  model-gateway serve                                    run the service
  model-gateway login                                    sign in
  model-gateway backends add http://localhost:11434      register a model server
  model-gateway connect claude-code                      settings for the programs that you use
  model-gateway chat "Why is the sky blue?"              talk to a model

Model gateway ${manifest.version}. Commands:
${columns(COMMANDS.map(({ name, summary }) => [name, summary]))}

Options of every command:
${columns(optionRows(COMMON_OPTIONS))}

model-gateway <command> --help shows a command's examples and options.
`);
}

export function helpOf(command: Command): string {
  const actions = command.actions ? `\n\nActions: ${command.actions.join(", ")}` : "";
  return `${asCalled(command.examples.map((example) => `  ${example}`).join("\n"))}

${command.summary}.${actions}

Options:
${columns(optionRows({ ...command.options, ...COMMON_OPTIONS }))}
`;
}
