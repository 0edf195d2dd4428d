/** Accessible names, after the accname computation; with the elements that a name was read from. */
import type { Dom } from "./dom.ts";
import type { Roles } from "./roles.ts";

export interface Name {
  text: string;
  /** Elements whose text went into the name. */
  sources: Set<Element>;
}

/** Why an element is being read: as the target itself, inside it, or through a reference to it. */
interface Reading {
  visited: Set<Element>;
  sources: Set<Element>;
  inTarget: "self" | "descendant" | null;
  via: "labelledby" | "label" | "native" | null;
  /** A referenced element may be hidden and is read all the same. */
  viaHidden: boolean;
  depth: number;
}

export function createNames(dom: Dom, roles: Roles) {
  const { tagOf } = dom;
  const words = (text: string) => new Set(text.split(" "));
  /** Deeper or longer than this no name is useful; a page may hold megabytes in one row. */
  const readingDepthMax = 60;
  const readingCharsMax = 4_000;

  const unnamed = words(
    "caption code definition deletion emphasis generic insertion mark paragraph presentation strong subscript " +
      "suggestion superscript term time",
  );
  const fromContent = words(
    "button cell checkbox columnheader gridcell heading link menuitem menuitemcheckbox menuitemradio option radio " +
      "row rowheader switch tab tooltip treeitem",
  );
  const fromContentInside = words(
    "caption code contentinfo definition deletion emphasis insertion list listitem mark none paragraph " +
      "presentation region row rowgroup section strong subscript superscript table term time",
  );
  const valueRoles = words("progressbar scrollbar slider spinbutton meter");
  const placeholderTypes = words("text password number search tel email url");

  const flat = (text: string) =>
    text
      .replace(/[\u200b\u00ad]/g, "")
      .replace(/[^\S\u00a0]+/g, " ")
      .trim();

  function labelReading(reading: Reading, element: Element, via: "labelledby" | "label" | "native"): Reading {
    const keepsTarget = via === "native";
    return {
      ...reading,
      inTarget: keepsTarget ? (reading.inTarget === "self" ? "descendant" : reading.inTarget) : null,
      via,
      viaHidden: dom.isHiddenForAria(element),
      depth: reading.depth + 1,
    };
  }

  function said(text: string | null | undefined, element: Element, reading: Reading): string {
    reading.visited.add(element);
    if (text) reading.sources.add(element);
    return text ?? "";
  }

  function fromLabels(element: Element, reading: Reading): string | null {
    const { labels } = element as HTMLInputElement;
    if (!labels?.length) return null;
    // A control inside its own label is not part of its name.
    reading.visited.add(element);
    return [...labels]
      .map((label) => read(label, labelReading(reading, label, "label")))
      .filter(Boolean)
      .join(" ");
  }

  function labelledByOf(element: Element): Element[] {
    return dom.elementsByIds(element, element.getAttribute("aria-labelledby"));
  }

  /** The value of a control that stands inside the text being read, as in "wait [5] minutes". */
  function embeddedValue(element: Element, role: string, reading: Reading): string | null {
    if (role === "textbox" || role === "searchbox") {
      const isField = element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement;
      return said(isField ? element.value : element.textContent, element, reading);
    }
    if (role === "combobox" || role === "listbox") {
      reading.visited.add(element);
      let chosen: Element[];
      if (element instanceof HTMLSelectElement) {
        chosen = [...element.selectedOptions];
        if (chosen.length === 0 && element.options[0]) chosen = [element.options[0]];
      } else {
        chosen = [...element.querySelectorAll('[aria-selected="true" i]')].filter(
          (option) => roles.roleOf(option) === "option",
        );
      }
      if (chosen.length === 0 && element instanceof HTMLInputElement)
        return said(element.value, element, reading);
      return chosen.map((option) => read(option, inside(reading))).join(" ");
    }
    if (valueRoles.has(role)) {
      const value =
        element.getAttribute("aria-valuetext") ??
        element.getAttribute("aria-valuenow") ??
        element.getAttribute("value");
      return said(value, element, reading);
    }
    return role === "menu" ? said("", element, reading) : null;
  }

  const trimmed = (element: Element, attribute: string) => {
    const value = element.getAttribute(attribute) ?? "";
    return value.trim() ? value : "";
  };

  function childText(
    element: Element,
    tag: string,
    reading: Reading,
    via: "native" | "labelledby",
  ): string | null {
    for (const child of element.children) {
      if (tagOf(child) === tag) return read(child, labelReading(reading, child, via));
    }
    return null;
  }

  function inputName(input: HTMLInputElement, reading: Reading): string {
    const { type } = input;
    if (type === "button" || type === "submit" || type === "reset") {
      const standard = type === "submit" ? "Submit" : type === "reset" ? "Reset" : trimmed(input, "title");
      return said(input.value.trim() ? input.value : standard, input, reading);
    }
    const label =
      reading.via === "labelledby" && (type === "file" || type === "image")
        ? null
        : fromLabels(input, reading);
    if (label !== null) return said(label, input, { ...reading, sources: new Set() });
    if (type === "file") return said("Choose File", input, reading);
    if (type === "image")
      return said(trimmed(input, "alt") || trimmed(input, "title") || "Submit", input, reading);
    const title = input.getAttribute("title");
    return said(
      title || !placeholderTypes.has(type) ? title : input.getAttribute("placeholder"),
      input,
      reading,
    );
  }

  /** Names that HTML itself defines: alt, label, legend, caption, title of a drawing. Null: none defined. */
  function nativeName(element: Element, hasLabelledBy: boolean, reading: Reading): string | null {
    const tag = tagOf(element);
    if (element instanceof HTMLInputElement) {
      const isButtonLike = /^(button|submit|reset|file|image)$/.test(element.type);
      return hasLabelledBy && !isButtonLike ? null : inputName(element, reading);
    }
    if (tag === "IMG" || tag === "AREA")
      return said(trimmed(element, "alt") || element.getAttribute("title"), element, reading);
    if (tag === "TABLE") {
      const caption = childText(element, "CAPTION", reading, "native");
      return (
        caption ??
        (element.getAttribute("summary") ? said(element.getAttribute("summary"), element, reading) : null)
      );
    }
    if (tag === "SVG" || (element as SVGElement).ownerSVGElement) {
      const title = childText(element, "TITLE", reading, "labelledby");
      if (title !== null) return title;
    }
    if (hasLabelledBy) return null;
    switch (tag) {
      case "BUTTON":
        return fromLabels(element, reading);
      case "OUTPUT":
      case "SELECT":
      case "METER":
      case "PROGRESS":
        return fromLabels(element, reading) ?? said(element.getAttribute("title"), element, reading);
      case "TEXTAREA":
        return (
          fromLabels(element, reading) ??
          said(element.getAttribute("title") || element.getAttribute("placeholder"), element, reading)
        );
      case "FIELDSET":
        return (
          childText(element, "LEGEND", reading, "native") ??
          said(element.getAttribute("title"), element, reading)
        );
      case "FIGURE":
        return (
          childText(element, "FIGCAPTION", reading, "native") ??
          said(element.getAttribute("title"), element, reading)
        );
      default:
        return null;
    }
  }

  const inside = (reading: Reading): Reading => ({
    ...reading,
    inTarget: reading.inTarget === "self" ? "descendant" : reading.inTarget,
    depth: reading.depth + 1,
  });

  function contentText(element: Element, reading: Reading): string {
    let text = dom.cssText(element, "::before");
    for (const node of dom.childrenOf(element)) {
      if (text.length > readingCharsMax) break;
      if (node instanceof Element) {
        const part = read(node, reading);
        const isInline = dom.styleOf(node).display === "inline" && tagOf(node) !== "BR";
        text += isInline ? part : ` ${part} `;
      } else if (node instanceof Text && (reading.viaHidden || !dom.isTextLeftOut(node))) {
        text += node.data.slice(0, readingCharsMax);
      }
    }
    for (const owned of dom.elementsByIds(element, element.getAttribute("aria-owns")))
      text += read(owned, reading);
    return text + dom.cssText(element, "::after");
  }

  function read(element: Element, reading: Reading): string {
    if (reading.visited.has(element) || reading.depth > readingDepthMax) return "";
    if (!reading.viaHidden && dom.isHiddenForAria(element)) return said("", element, reading);
    const labelledBy = labelledByOf(element);
    if (reading.via !== "labelledby" && labelledBy.length > 0) {
      const text = labelledBy
        .map((label) => read(label, labelReading(reading, label, "labelledby")))
        .join(" ");
      if (text) return text;
    }
    const role = roles.roleOf(element) ?? "";
    if (reading.via === "label" || reading.via === "labelledby" || reading.inTarget === "descendant") {
      if (!labelledBy.includes(element)) {
        const value = embeddedValue(element, role, reading);
        if (value !== null) return value;
      }
    }
    const ariaLabel = trimmed(element, "aria-label");
    if (ariaLabel) return said(ariaLabel, element, reading);
    const isPresentation = role === "presentation" || role === "none";
    if (!isPresentation) {
      const native = nativeName(element, labelledBy.length > 0, reading);
      if (native !== null) return native;
    }
    const readsContent =
      fromContent.has(role) ||
      (reading.inTarget === "descendant" && (role === "" || fromContentInside.has(role))) ||
      (tagOf(element) === "SUMMARY" && !isPresentation) ||
      reading.via !== null;
    reading.visited.add(element);
    if (readsContent) {
      const text = contentText(element, inside(reading));
      if (reading.inTarget === "self" ? text.trim() : text) {
        if (text.trim()) reading.sources.add(element);
        return text;
      }
    }
    return isPresentation ? "" : said(trimmed(element, "title"), element, reading);
  }

  function nameOf(element: Element, role: string): Name {
    const sources = new Set<Element>();
    if (unnamed.has(role)) return { text: "", sources };
    const text = read(element, {
      visited: new Set(),
      sources,
      inTarget: "self",
      via: null,
      viaHidden: false,
      depth: 0,
    });
    return { text: flat(text).replace(/\s+/g, " "), sources };
  }

  return { nameOf };
}

export type Names = ReturnType<typeof createNames>;
