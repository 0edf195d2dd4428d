import type { BackendKind } from "../../packages/gateway/src/backends/contract.ts";

const code = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(", ");

/** Every backend kind as Markdown, from what it declares. */
export function backendReference(kinds: Iterable<BackendKind>): string {
  const rows = [...kinds].map(({ kind, types, speaks, schemes, capabilities, modelSources }) => {
    const names = code([kind, ...types.map(({ name }) => name)]);
    const urls = code(schemes.map((scheme) => `${scheme}//`));
    const models = modelSources.join(", then ");
    return `| ${kind} | ${names} | ${speaks} | ${urls} | ${capabilities.join(", ")} | ${models} |`;
  });
  return [
    "# Backend kinds",
    "",
    "Made from the kinds' descriptors. `type` is what a registration says; `bridge://` URLs work for every kind. Models are `static` (as registered) or `discovered` (as the server lists them).",
    "",
    "| Kind | `type` | Speaks | URLs | Capabilities | Models |",
    "|---|---|---|---|---|---|",
    ...rows,
    "",
  ].join("\n");
}
