/** Texts as YAML, quoted where they could be taken for something else. */

export function createYaml() {
  const reserved = new Set(["y", "n", "yes", "no", "true", "false", "on", "off", "null", "~"]);

  function needsQuotes(text: string): boolean {
    return (
      text === "" ||
      /^\s|\s$|^[-&*\],?!>|@"'#%[]|[\n\r{}`]|:(\s|$)|\s#/.test(text) ||
      // biome-ignore lint/suspicious/noControlCharactersInRegex: YAML forbids them in plain text.
      /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/.test(text) ||
      !Number.isNaN(Number(text)) ||
      reserved.has(text.toLowerCase()) ||
      /^[-+]?\.(inf|nan)$/i.test(text)
    );
  }

  const asKey = (text: string) => (needsQuotes(text) ? `'${text.replace(/'/g, "''")}'` : text);

  function asValue(text: string): string {
    if (!needsQuotes(text)) return text;
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what has to be escaped.
    const escaped = text.replace(/[\\"\x00-\x1f\x7f-\x9f]/g, (char) => {
      const short: Record<string, string> = {
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
      };
      if (char === "\\" || char === '"') return `\\${char}`;
      return short[char] ?? `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`;
    });
    return `"${escaped}"`;
  }

  return { asKey, asValue };
}

export type Yaml = ReturnType<typeof createYaml>;
