/** A snapshot, read as a model reads it: roles, names, texts, places and hints, line by line. */

export interface Point {
  x: number;
  y: number;
}

export interface Box extends Point {
  width: number;
  height: number;
}

export class Part {
  readonly role: string;
  readonly name: string;
  /** Everything in brackets but the ref and the place. */
  readonly flags: string;
  readonly ref: string;
  readonly box: Box;
  readonly parent: Part | null;
  readonly parts: Part[] = [];
  hint = "";

  constructor(head: string, parent: Part | null) {
    const [, role, name] = /^(\S+)(?: ("(?:[^"\\]|\\.)*"))?/.exec(head)!;
    this.role = role!;
    this.name = name ? JSON.parse(name) : "";
    this.flags = [...head.matchAll(/\[([^\]]*)\](?=$| \[)/g)].map((match) => match[1]).join(" ");
    this.ref = /\bref=(\w+)/.exec(this.flags)?.[1] ?? "";
    const [x = 0, y = 0, width = 0, height = 0] = (/\bbox=([-\d,]+)/.exec(this.flags)?.[1] ?? "")
      .split(",")
      .map(Number);
    this.box = { x, y, width, height };
    this.parent = parent;
  }

  /** Its name and all texts in it. */
  get text(): string {
    return [this.name, ...this.parts.map((part) => part.text)].filter(Boolean).join(" ");
  }

  get middle(): Point {
    const { x, y, width, height } = this.box;
    return { x: x + width / 2, y: y + height / 2 };
  }

  /** What the hint says of its colour: #ff8800, rgb(1, 2, 3) or a name. */
  get colour(): string {
    return /(?:fill|background)=(.+)$/.exec(this.hint)?.[1] ?? "";
  }

  /** All parts below, in their order. */
  get inside(): Part[] {
    return this.parts.flatMap((part) => [part, ...part.inside]);
  }

  get around(): Part[] {
    return this.parent ? [this.parent, ...this.parent.around] : [];
  }

  all(...roles: string[]): Part[] {
    return this.inside.filter(({ role }) => roles.includes(role));
  }

  hinted(hint: RegExp): Part[] {
    return this.inside.filter((part) => hint.test(part.hint));
  }
}

const unquoted = (text: string) =>
  text.startsWith('"')
    ? (JSON.parse(text) as string)
    : text.startsWith("'")
      ? text.slice(1, -1).replaceAll("''", "'")
      : text;

/** A line's key and its value; a key with special signs stands in quotes. */
function split(line: string): [key: string, value: string] {
  const quoted = /^('(?:[^']|'')*')(?:: ?(.*))?$/.exec(line);
  const plain = /^((?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^":[])+)(?:: ?(.*))?$/.exec(line);
  const [, key = line, value = ""] = quoted ?? plain ?? [];
  return [unquoted(key).replace(/:$/, ""), unquoted(value)];
}

export function readSnapshot(text: string): Part {
  const yaml = /```yaml\n([\s\S]*?)\n?```/.exec(text)?.[1] ?? "";
  const top = new Part("page", null);
  const open: Part[] = [top];
  for (const line of yaml.split("\n")) {
    if (!/^ *- /.test(line)) continue;
    const depth = line.search(/\S/) / 2;
    const [key, value] = split(line.trim().slice(2));
    const parent = open[depth] ?? top;
    if (key === "/hint") parent.hint = value;
    if (key.startsWith("/")) continue;
    const isText = key === "text";
    const part = new Part(isText ? `text ${JSON.stringify(value)}` : key, parent);
    if (!isText && value) part.parts.push(new Part(`text ${JSON.stringify(value)}`, part));
    parent.parts.push(part);
    open.length = depth + 1;
    open.push(part);
  }
  return top;
}
