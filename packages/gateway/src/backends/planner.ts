import * as kinds from "./kinds.ts";

export type Plan =
  | { kind: string; dialect?: string }
  /** A type that existed once; the message says what to use instead. */
  | { removed: string };

const PLANS = new Map<string, Plan>([
  ...Object.values(kinds).flatMap(({ kind, types }): [string, Plan][] => [
    [kind, { kind }],
    ...types.map(({ name, dialect }): [string, Plan] => [name, { kind, ...(dialect && { dialect }) }]),
  ]),
  [
    "comfyui",
    {
      removed:
        "The comfyui backend was removed: register a cloud-video backend, or an engine that declares the video capability",
    },
  ],
]);

/** What an operator's `type` stands for: a kind itself or an engine's name. Null when it is neither. */
export function plan(type: string): Plan | null {
  return PLANS.get(type.trim().toLowerCase()) ?? null;
}
