/** Accessible names, after the accname computation; with the elements that a name was read from. */
import type { Dom } from "./dom.ts";
import type { Generated } from "./generated.ts";
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

export function createNames(dom: Dom, roles: Roles, generated: Generated) {
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
    "button cell checkbox columnheader doc-backlink doc-biblioref doc-glossref doc-noteref gridcell heading link " +
      "menuitem menuitemcheckbox menuitemradio option radio row rowheader switch tab tooltip treeitem",
  );
  const fromContentInside = words(
    "caption code contentinfo definition deletion emphasis insertion list listitem mark none paragraph " +
      "presentation region row rowgroup section sectionfooter sectionheader strong subscript suggestion superscript " +
      "table term time",
  );
  /** Without a name of their own these are called after their first heading. */
  const fromHeading = words("alertdialog article dialog");
  const valueRoles = words("progressbar scrollbar slider spinbutton meter");
  const placeholderTypes = words("text password number search tel email url");

  /** A no-break space was written on purpose and stays. */
  const flat = (text: string) =>
    text
      .replace(/[\u200b\u00ad]/g, "")
      .replace(/[^\S\u00a0]+/g, " ")
      .replace(/^ | $/g, "");

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
      if (chosen.length === 0 && role === "combobox") return contentText(element, reading);
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

  /** A picture without a text that is all of a figure is called as the figure is. */
  function captionOf(image: Element, reading: Reading): string {
    const figure = image.closest("figure");
    const caption = figure?.querySelector(":scope > figcaption");
    if (!figure || !caption) return said("", image, reading);
    const isAlone = [...figure.childNodes].every((node) =>
      node instanceof Element
        ? node === caption || (node.contains(image) && !node.textContent?.trim())
        : !node.textContent?.trim() || node.nodeType === Node.COMMENT_NODE,
    );
    return isAlone ? read(caption, labelReading(reading, caption, "native")) : said("", image, reading);
  }

  /** Names that HTML itself defines: alt, label, legend, caption, title of a drawing. Null: none defined. */
  function nativeName(element: Element, hasLabelledBy: boolean, reading: Reading): string | null {
    const tag = tagOf(element);
    if (element instanceof HTMLInputElement) {
      const isButtonLike = /^(button|submit|reset|file|image)$/.test(element.type);
      return hasLabelledBy && !isButtonLike ? null : inputName(element, reading);
    }
    if (tag === "IMG" || tag === "AREA") {
      const text = trimmed(element, "alt") || element.getAttribute("title");
      if (!text && tag === "IMG" && !element.hasAttribute("alt")) return captionOf(element, reading);
      return said(text, element, reading);
    }
    if (tag === "TABLE") {
      const caption = childText(element, "CAPTION", reading, "native");
      return (
        caption ??
        (element.getAttribute("summary") ? said(element.getAttribute("summary"), element, reading) : null)
      );
    }
    if (element instanceof SVGElement) {
      const title =
        childText(element, "TITLE", reading, "labelledby") ??
        element.getAttributeNS("http://www.w3.org/1999/xlink", "title");
      // The title of a link is a tooltip: what stands in the link comes first.
      if (title !== null && !(tag === "A" && element.textContent?.trim()))
        return said(title, element, reading);
    }
    if (hasLabelledBy) return null;
    switch (tag) {
      case "OPTGROUP":
        return said(element.getAttribute("label") || element.getAttribute("title"), element, reading);
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

  function contentText(element: Element, outer: Reading): string {
    const reading = inside(outer);
    let text = generated.cssText(element, "::before");
    for (const node of dom.childrenOf(element)) {
      if (text.length > readingCharsMax) break;
      if (node instanceof Element) {
        const part = read(node, reading);
        const isInline = dom.displayOf(node) === "inline" && tagOf(node) !== "BR";
        text += isInline ? part : ` ${part} `;
      } else if (node instanceof Text && (reading.viaHidden || !dom.isTextLeftOut(node))) {
        text += generated.shownText(node).slice(0, readingCharsMax);
      }
    }
    text += generated.cssText(element, "::after");
    // The bullet of a list item belongs to what is called after the item, not to the item's own name.
    return outer.inTarget === "self" || !text.trim() ? text : generated.markerText(element) + text;
  }

  /** What is invisible by its style can still hold something that is not. */
  function visiblePartsOf(element: Element, reading: Reading): string {
    reading.visited.add(element);
    if (dom.isRemoved(element)) return "";
    let text = "";
    for (const node of dom.childrenOf(element))
      if (node instanceof Element) text += ` ${read(node, inside(reading))} `;
    return text;
  }

  function headingOf(element: Element): Element | null {
    const headings = element.querySelectorAll("h1, h2, h3, h4, h5, h6, [role~=heading]");
    for (const heading of headings)
      if (roles.roleOf(heading) === "heading" && !dom.isHiddenForAria(heading)) return heading;
    return null;
  }

  function read(element: Element, reading: Reading): string {
    if (reading.visited.has(element) || reading.depth > readingDepthMax) return "";
    if (!reading.viaHidden && dom.isHiddenForAria(element)) return visiblePartsOf(element, reading);
    // What is put into a slot is read, what is said about the slot is not.
    if (tagOf(element) === "SLOT" && reading.inTarget !== "self") return contentText(element, reading);
    const labelledBy = labelledByOf(element);
    if (reading.via !== "labelledby" && labelledBy.length > 0) {
      const text = labelledBy
        .map((label) => read(label, labelReading(reading, label, "labelledby")))
        .join(" ");
      if (text.trim()) return text;
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
      const text = contentText(element, reading);
      if (reading.inTarget === "self" ? text.trim() : text) {
        if (text.trim()) reading.sources.add(element);
        return text;
      }
    }
    if (isPresentation) return "";
    const title = trimmed(element, "title");
    const heading =
      !title && reading.inTarget === "self" && fromHeading.has(role) ? headingOf(element) : null;
    if (heading) return read(heading, labelReading(reading, heading, "native"));
    return said(title, element, reading);
  }

  function nameOf(element: Element, role: string): Name {
    const sources = new Set<Element>();
    if (unnamed.has(role)) return { text: "", sources };
    // What an element offers as its actions is not part of what it is called.
    const actions = dom.elementsByIds(element, element.getAttribute("aria-actions"));
    const text = read(element, {
      visited: new Set(actions),
      sources,
      inTarget: "self",
      via: null,
      viaHidden: false,
      depth: 0,
    });
    return { text: flat(text), sources };
  }

  return { nameOf };
}

export type Names = ReturnType<typeof createNames>;
