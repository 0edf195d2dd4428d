import type { BackendKind } from "../../packages/gateway/src/backends/contract.ts";

const code = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(", ");

/** Every backend kind as Markdown, from what it declares. */
export function backendReference(kinds: Iterable<BackendKind>): string {
  const all = [...kinds];
  const known = all.flatMap((kind) => Object.entries(kind.known ?? {}));
  const rows = all.map(({ kind, types, speaks, schemes, capabilities, modelSources }) => {
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
    "## Fields that pass",
    "",
    "Of `extra` of a clip, and of the settings of a voice session. Others are refused with a 400 that lists these, unless the backend's registration names them in `fields`. Those of images, sounds, rankings and moderations are in [the HTTP reference](http.md).",
    "",
    "| Of | Fields |",
    "|---|---|",
    ...known.map(([whose, names]) => `| ${whose} | ${code(names)} |`),
    "",
  ].join("\n");
}
