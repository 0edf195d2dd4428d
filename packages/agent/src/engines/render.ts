/** Fills `{variables}` into a template. Each argument stays one argument: no shell ever sees it. */

export const TEMPLATE_VARIABLES = [
  "model_id",
  "model_path",
  "port",
  "bind",
  "gpus",
  "gpu_count",
  "gpu_share",
  "context_tokens",
  "context_total",
  "slots",
  "api_key",
  "data_dir",
] as const;
export type TemplateVariables = Record<(typeof TEMPLATE_VARIABLES)[number], string>;

const VARIABLE = /\{([a-z_]+)\}/g;

const isVariable = (name: string): name is keyof TemplateVariables =>
  (TEMPLATE_VARIABLES as readonly string[]).includes(name);

/** Null when every variable in the text is known; otherwise what is wrong. */
export function checkTemplate(text: string): string | null {
  for (const [, name] of text.matchAll(VARIABLE))
    if (!isVariable(name!))
      return `unknown variable {${name}}; there are ${TEMPLATE_VARIABLES.map((each) => `{${each}}`).join(" ")}`;
  return null;
}

export function render(text: string, variables: TemplateVariables): string {
  return text.replace(VARIABLE, (whole, name: string) => (isVariable(name) ? variables[name] : whole));
}

export function renderEnv(env: Record<string, string>, variables: TemplateVariables): Record<string, string> {
  return Object.fromEntries(Object.entries(env).map(([name, value]) => [name, render(value, variables)]));
}
