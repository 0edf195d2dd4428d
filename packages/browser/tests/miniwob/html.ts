/** HTML as browser_dom returns it, read into a tree that can be asked simple questions. */

const voidTags = /^(area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)$/;
const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: " " };
const decode = (text: string) =>
  text.replace(/&(amp|lt|gt|quot|nbsp);/g, (_, name: string) => entities[name]!);

export class Element {
  readonly tag: string;
  readonly attributes: Record<string, string>;
  readonly parent: Element | null;
  readonly children: (Element | string)[] = [];

  constructor(tag: string, attributes: Record<string, string>, parent: Element | null) {
    this.tag = tag;
    this.attributes = attributes;
    this.parent = parent;
  }

  get elements(): Element[] {
    return this.children.filter((child) => child instanceof Element);
  }

  get text(): string {
    const parts = this.children.map((child) => (typeof child === "string" ? child : child.text));
    return parts.join("").replace(/\s+/g, " ").trim();
  }

  get classes(): string[] {
    return (this.attributes.class ?? "").split(/\s+/).filter(Boolean);
  }

  /** A number that an attribute holds. */
  number(name: string): number {
    return Number.parseFloat(this.attributes[name] ?? "NaN");
  }

  /** The value of a property in the style attribute. */
  style(name: string): string {
    const found = new RegExp(`(?:^|;)\\s*${name}:\\s*([^;]+)`).exec(this.attributes.style ?? "");
    return found?.[1]?.trim() ?? "";
  }

  /** All elements below that match one compound selector: tag, #id, .class, [attribute] and [attribute=value]. */
  all(selector: string): Element[] {
    const found: Element[] = [];
    const visit = (element: Element) => {
      for (const child of element.elements) {
        if (child.matches(selector)) found.push(child);
        visit(child);
      }
    };
    visit(this);
    return found;
  }

  first(selector: string): Element | undefined {
    return this.all(selector)[0];
  }

  matches(selector: string): boolean {
    return selector.split(",").some((each) => {
      const parts = each.trim().match(/^[\w-]+|#[\w-]+|\.[\w-]+|\[[^\]]+\]/g) ?? [];
      return parts.every((part) => {
        if (part.startsWith("#")) return this.attributes.id === part.slice(1);
        if (part.startsWith(".")) return this.classes.includes(part.slice(1));
        if (!part.startsWith("[")) return this.tag === part;
        const [name, value] = part.slice(1, -1).split("=");
        return value === undefined ? name! in this.attributes : this.attributes[name!] === value;
      });
    });
  }

  get ancestors(): Element[] {
    return this.parent ? [this.parent, ...this.parent.ancestors] : [];
  }

  /** A selector that leads to this element: from the nearest id above it down, child by child. */
  get path(): string {
    if (this.attributes.id) return `[id="${this.attributes.id}"]`;
    if (!this.parent) return this.tag;
    return `${this.parent.path} > :nth-child(${this.parent.elements.indexOf(this) + 1})`;
  }
}

export function parse(html: string): Element {
  const root = new Element("root", {}, null);
  let at = root;
  for (const [token, closing, tag, rest, selfClosing] of html.matchAll(
    /<!--[\s\S]*?-->|<(\/?)([\w-]+)((?:[^>"]|"[^"]*")*?)(\/?)>|[^<]+/g,
  )) {
    if (token.startsWith("<!--")) continue;
    if (tag === undefined) {
      at.children.push(decode(token));
      continue;
    }
    if (closing) {
      while (at.tag !== tag.toLowerCase() && at.parent) at = at.parent;
      at = at.parent ?? root;
      continue;
    }
    const attributes: Record<string, string> = {};
    for (const [, name, value] of (rest ?? "").matchAll(/([\w:-]+)(?:="([^"]*)")?/g))
      attributes[name!] = decode(value ?? "");
    const element = new Element(tag.toLowerCase(), attributes, at);
    at.children.push(element);
    if (!selfClosing && !voidTags.test(element.tag)) at = element;
  }
  return root.elements[0] ?? root;
}
