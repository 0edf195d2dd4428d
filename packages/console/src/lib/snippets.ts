export interface SnippetRequest {
  model: string;
  messages: readonly unknown[];
  [field: string]: unknown;
}

export const LANGUAGES = [
  { value: "curl", label: "curl" },
  { value: "js", label: "JavaScript" },
  { value: "python", label: "Python" },
] as const;
export type Language = (typeof LANGUAGES)[number]["value"];

/** Fields of this service: Python's `openai` takes arguments that it does not know only as an extra body. */
const OWN_FIELDS = new Set(["provider", "memory"]);

const pythonOf = (value: unknown, indent = 0): string => {
  const pad = "    ".repeat(indent + 1);
  const end = "    ".repeat(indent);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    return `[\n${value.map((item) => `${pad}${pythonOf(item, indent + 1)},`).join("\n")}\n${end}]`;
  }
  if (typeof value === "object") {
    const entries = Object.entries(value as Record<string, unknown>);
    const flat = `{${entries.map(([name, field]) => `${JSON.stringify(name)}: ${pythonOf(field)}`).join(", ")}}`;
    if (flat.length < 80 && !flat.includes("\n")) return flat;
    return `{\n${entries.map(([name, field]) => `${pad}${JSON.stringify(name)}: ${pythonOf(field, indent + 1)},`).join("\n")}\n${end}}`;
  }
  return JSON.stringify(value);
};

const indented = (text: string, pad: string) => text.replaceAll("\n", `\n${pad}`);

/** The request as a program that does the same through the public interface. */
export function snippet(
  language: Language,
  { origin, key, request, ref }: { origin: string; key: string; request: SnippetRequest; ref?: string },
): string {
  const body = JSON.stringify(request, null, 2);
  if (language === "curl") {
    const refHeader = ref ? `  -H "x-service-ref: ${ref}" \\\n` : "";
    return `curl ${request.stream ? "-N " : ""}${origin}/v1/chat/completions \\
  -H "authorization: Bearer ${key}" \\
  -H "content-type: application/json" \\
${refHeader}  -d '${body.replaceAll("'", "'\\''")}'`;
  }
  if (language === "js") {
    const headers = ref ? `, {\n  headers: { "x-service-ref": "${ref}" },\n}` : "";
    const call = `const answer = await client.chat.completions.create(${body}${headers});`;
    const read = request.stream
      ? `for await (const part of answer) process.stdout.write(part.choices[0]?.delta?.content ?? "");`
      : "console.log(answer.choices[0].message.content);";
    return `import OpenAI from "openai";

const client = new OpenAI({ baseURL: "${origin}/v1", apiKey: "${key}" });
${call}
${read}`;
  }
  const known = Object.entries(request).filter(([name]) => !OWN_FIELDS.has(name));
  const own = Object.fromEntries(Object.entries(request).filter(([name]) => OWN_FIELDS.has(name)));
  const fields = known.map(([name, value]) => `    ${name}=${indented(pythonOf(value), "    ")},`);
  if (Object.keys(own).length > 0) fields.push(`    extra_body=${pythonOf(own)},`);
  if (ref) fields.push(`    extra_headers={"x-service-ref": "${ref}"},`);
  const read = request.stream
    ? 'for part in answer:\n    if part.choices:\n        print(part.choices[0].delta.content or "", end="", flush=True)'
    : "print(answer.choices[0].message.content)";
  return `from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key="${key}")
answer = client.chat.completions.create(
${fields.join("\n")}
)
${read}`;
}
