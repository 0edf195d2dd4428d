import { act, type Command } from "../command.ts";

const optionsOf = (command: Command, common: readonly string[]) => [
  ...Object.keys(command.options ?? {}).map((name) => `--${name}`),
  ...common,
];

export function completionFor(
  shell: string,
  commands: readonly Command[],
  common: readonly string[],
): string {
  const names = commands.map(({ name }) => name).join(" ");
  return act(
    [shell],
    {
      bash: () => {
        const cases = commands.map(
          (command) =>
            `    ${command.name}) words="${[...(command.actions ?? []), ...optionsOf(command, common)].join(" ")}" ;;`,
        );
        return `# model-gateway completion for bash: eval "$(model-gateway completion bash)"
_model_gateway() {
  # Bash breaks words at colons, which models have; the line has them whole.
  local line="\${COMP_LINE:0:COMP_POINT}"
  local current="\${line##*[[:space:]]}" words values="" typed=()
  if [ "$COMP_CWORD" -eq 1 ]; then words="${names}"; else
    case "\${COMP_WORDS[1]}" in
${cases.join("\n")}
    *) words="" ;;
    esac
    # What only the service knows: models, keys, groups.
    case "$current" in -*) ;; *) read -ra typed <<< "\${line#* }"
      [[ "$line" == *[[:space:]] ]] && typed+=("")
      values="$("\${COMP_WORDS[0]}" __complete "\${typed[@]}" 2>/dev/null)" ;; esac
  fi
  COMPREPLY=($(compgen -W "$words $values" -- "$current"))
  if [[ "$current" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
    COMPREPLY=("\${COMPREPLY[@]#"\${current%"\${current##*:}"}"}")
  fi
}
complete -F _model_gateway model-gateway
`;
      },
      zsh: () => {
        const quoted = (value: string) => value.replaceAll("'", "").replaceAll(":", " ");
        const list = commands.map(({ name, summary }) => `    '${name}:${quoted(summary)}'`).join("\n");
        const cases = commands.map(
          (command) =>
            `    ${command.name}) compadd -- ${[...(command.actions ?? []), ...optionsOf(command, common)].join(" ")} ;;`,
        );
        return `#compdef model-gateway
# model-gateway completion for zsh: eval "$(model-gateway completion zsh)"
_model-gateway() {
  local -a commands
  commands=(
${list}
  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  case "\${words[2]}" in
${cases.join("\n")}
  esac
  # What only the service knows: models, keys, groups.
  local -a values
  if [[ "\${words[CURRENT]}" != -* ]]; then
    values=(\${(f)"$("\${words[1]}" __complete "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#values )) && compadd -- $values
  fi
  return 0
}
if [ "\${funcstack[1]}" = "_model-gateway" ]; then
  _model-gateway "$@"
else
  compdef _model-gateway model-gateway
fi
`;
      },
      fish: () => {
        const lines = commands.flatMap((command) => {
          const seen = `__fish_seen_subcommand_from ${command.name}`;
          return [
            `complete -c model-gateway -n __fish_use_subcommand -a ${command.name} -d '${command.summary.replaceAll("'", "")}'`,
            ...(command.actions
              ? [`complete -c model-gateway -n '${seen}' -a '${command.actions.join(" ")}'`]
              : []),
            ...optionsOf(command, common).map(
              (option) => `complete -c model-gateway -n '${seen}' -l ${option.slice(2)}`,
            ),
          ];
        });
        // What only the service knows: models, keys, groups.
        const values =
          "complete -c model-gateway -n 'not __fish_use_subcommand' -a '(model-gateway __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'";
        return `# model-gateway completion for fish: model-gateway completion fish | source\ncomplete -c model-gateway -f\n${lines.join("\n")}\n${values}\n`;
      },
    },
    "bash",
  );
}
