/**
 * Renders the chart in deploy/helm. Helm itself is not to be had from Debian or npm, so this knows the part of its
 * templates that the chart uses, and throws at anything else.
 */
import { join } from "node:path";
import { Glob } from "bun";

// biome-ignore lint/suspicious/noExplicitAny: values and documents of many shapes
type Any = any;

interface Scope {
  root: Any;
  variables: Record<string, unknown>;
}

const isTrue = (value: unknown): boolean =>
  !(value === undefined || value === null || value === "" || value === false || value === 0);

function term(word: string, { root, variables }: Scope): unknown {
  if (word.startsWith("$")) return variables[word];
  if (!/^(\.[A-Za-z]\w*)+$/.test(word)) throw new Error(`helm: ${word} is not known here`);
  const found = word
    .slice(1)
    .split(".")
    .reduce((value: Any, name) => value?.[name], root);
  if (found === undefined) throw new Error(`helm: there is no ${word}`);
  return found;
}

const indented = (text: string, by: number) =>
  `\n${text.replace(/^/gm, " ".repeat(by)).replace(/^ +$/gm, "")}`;

/** `.Values.x | quote` and the like. */
function evaluate(expression: string, scope: Scope): unknown {
  return expression.split("|").reduce((value: unknown, part, at) => {
    const [name = "", ...words] = part.trim().split(/\s+/);
    if (at === 0 && name === "toYaml") return Bun.YAML.stringify(term(words[0]!, scope), null, 2).trimEnd();
    if (at === 0) return term(part.trim(), scope);
    if (name === "quote") return JSON.stringify(String(value));
    if (name === "nindent") return indented(String(value), Number(words[0]));
    if (name === "default") return isTrue(value) ? value : term(words[0]!, scope);
    throw new Error(`helm: ${name} is not known here`);
  }, undefined);
}

/** `{{-` takes the white space before it away. */
const pieces = (template: string) => template.replace(/\s*\{\{-/g, "{{").split(/\{\{\s*(.*?)\s*\}\}/s);

function rendered(template: string, root: Any): string {
  const parts = pieces(template);
  const run = (from: number, scope: Scope, isShown: boolean): [text: string, next: number] => {
    let text = "";
    let at = from;
    while (at < parts.length) {
      if (isShown) text += parts[at];
      const action = parts[at + 1];
      at += 2;
      if (action === undefined || action === "end") break;
      const block = /^if (not )?(\S+)$/.exec(action);
      const loop = /^range (\$\w+), (\$\w+) := (\S+)$/.exec(action);
      if (block) {
        const isMet = isTrue(term(block[2]!, scope)) !== Boolean(block[1]);
        const [inner, next] = run(at, scope, isShown && isMet);
        [text, at] = [text + inner, next];
      } else if (loop) {
        const [, key, value, list] = loop;
        let next = at;
        // Go goes through maps in the order of their keys.
        for (const [name, each] of Object.entries(term(list!, scope) as object).sort()) {
          const inside = { ...scope, variables: { ...scope.variables, [key!]: name, [value!]: each } };
          const [inner, after] = run(at, inside, isShown);
          [text, next] = [text + inner, after];
        }
        at = next === at ? run(at, scope, false)[1] : next;
      } else if (isShown) text += String(evaluate(action, scope));
    }
    return [text, at];
  };
  return run(0, { root, variables: {} }, true)[0];
}

/** The documents of the chart, as `helm template <release> deploy/helm --set …` has them. */
export async function renderChart(folder: string, release: string, changes: object = {}): Promise<Any[]> {
  const yaml = async (name: string) => Bun.YAML.parse(await Bun.file(join(folder, name)).text()) as Any;
  const chart = await yaml("Chart.yaml");
  const Values = { ...(await yaml("values.yaml")), ...changes };
  const root = { Values, Release: { Name: release }, Chart: { AppVersion: String(chart.appVersion) } };
  const documents: Any[] = [];
  for (const name of new Glob("*.yaml").scanSync(join(folder, "templates"))) {
    const text = rendered(await Bun.file(join(folder, "templates", name)).text(), root);
    documents.push(...[Bun.YAML.parse(text)].flat().filter((each) => each !== null && each !== undefined));
  }
  return documents;
}
