export interface Parameters {
  system: string;
  temperature: string;
  topP: string;
  maxTokens: string;
  provider: string;
  tools: string;
  extra: string;
  memory: boolean;
}

export const EMPTY_PARAMETERS: Parameters = {
  system: "",
  temperature: "",
  topP: "",
  maxTokens: "",
  provider: "",
  tools: "",
  extra: "",
  memory: true,
};

function parseJson(text: string): { value?: unknown; problem?: string } {
  if (text.trim() === "") return {};
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { problem: `not valid JSON: ${(error as Error).message}` };
  }
}

export function parseTools(text: string): { tools?: unknown[]; problem?: string } {
  const { value, problem } = parseJson(text);
  if (problem) return { problem: `Tools are ${problem}` };
  if (value === undefined) return {};
  return Array.isArray(value) ? { tools: value } : { problem: "Tools must be a JSON array" };
}

export function parseExtra(text: string): { extra?: Record<string, unknown>; problem?: string } {
  const { value, problem } = parseJson(text);
  if (problem) return { problem: `Other fields are ${problem}` };
  if (value === undefined) return {};
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject
    ? { extra: value as Record<string, unknown> }
    : { problem: "Other fields must be a JSON object" };
}

export const problemOf = ({ tools, extra }: Parameters): string | undefined =>
  parseTools(tools).problem ?? parseExtra(extra).problem;

/** The request's fields; what was left empty is left out, so that the model's own default applies. */
export function fieldsOf(parameters: Parameters): Record<string, unknown> {
  const { temperature, topP, maxTokens, provider, memory } = parameters;
  const { tools } = parseTools(parameters.tools);
  const extra = { ...(topP !== "" && { top_p: Number(topP) }), ...parseExtra(parameters.extra).extra };
  return {
    ...(temperature !== "" && { temperature: Number(temperature) }),
    ...(maxTokens !== "" && { max_tokens: Number(maxTokens) }),
    ...(provider !== "" && { provider }),
    ...(tools && tools.length > 0 && { tools }),
    ...(Object.keys(extra).length > 0 && { extra }),
    ...(!memory && { memory: false }),
  };
}
