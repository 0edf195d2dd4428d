/** ARIA roles of elements, after the accessibility mappings of HTML and SVG. */
import type { Dom } from "./dom.ts";
import type { RoleTables } from "./role-tables.ts";
import type { StateReader } from "./states.ts";

export function createRoles(dom: Dom, states: StateReader, tables: RoleTables) {
  const { tagOf, parentOf, closest } = dom;
  const { isDisabled } = states;
  /** How far up a list is looked for, past elements without a meaning. */
  const listStepsMax = 20;

  const isFilled = (element: Element, attribute: string) => Boolean(element.getAttribute(attribute)?.trim());

  /** Whether aria-label or aria-labelledby give it a name; an empty one is none. */
  function hasAriaName(element: Element): boolean {
    if (isFilled(element, "aria-label")) return true;
    return dom
      .elementsByIds(element, element.getAttribute("aria-labelledby"))
      .some(
        (label) =>
          Boolean(label.textContent?.trim()) ||
          label.shadowRoot !== null ||
          ["aria-label", "alt", "title", "value"].some((attribute) => isFilled(label, attribute)),
      );
  }

  const hasAuthorName = (element: Element) => hasAriaName(element) || isFilled(element, "title");

  function hasGlobalAttribute(element: Element, role: string | null): boolean {
    if (tables.globalAttributes.some((name) => element.hasAttribute(name))) return true;
    return hasAriaName(element) || (role !== "generic" && element.hasAttribute("aria-roledescription"));
  }

  const hasTabIndex = (element: Element) => !Number.isNaN(Number(String(element.getAttribute("tabindex"))));

  const isLink = (element: Element) =>
    element.hasAttribute("href") || element.hasAttributeNS("http://www.w3.org/1999/xlink", "href");

  function isFocusable(element: Element): boolean {
    if (isDisabled(element)) return false;
    const tag = tagOf(element);
    if (/^(BUTTON|DETAILS|SELECT|TEXTAREA)$/.test(tag)) return true;
    if (tag === "A" || tag === "AREA") return isLink(element) || hasTabIndex(element);
    if (tag === "INPUT") return !(element as HTMLInputElement).hidden || hasTabIndex(element);
    return hasTabIndex(element);
  }

  /** The first role of the attribute that is known and may be used here: landmarks need a name. */
  function explicitRole(element: Element): string | null {
    const attribute = element.getAttribute("role");
    if (!attribute) return null;
    for (const word of attribute.toLowerCase().split(/\s+/)) {
      const role = tables.synonyms[word] ?? word;
      if (!tables.knownRoles.has(role)) continue;
      if ((role === "region" || role === "form") && !hasAuthorName(element)) continue;
      return role;
    }
    return null;
  }

  function headerCellRole(cell: Element): string | null {
    const scope = cell.getAttribute("scope");
    if (scope === "col" || scope === "colgroup") return "columnheader";
    if (scope === "row" || scope === "rowgroup") return "rowheader";
    const next = cell.nextElementSibling;
    const previous = cell.previousElementSibling;
    if (!next && !previous) {
      const table = cell.parentElement ? closest(cell.parentElement, "table") : null;
      return table instanceof HTMLTableElement && table.rows.length <= 1 ? null : "columnheader";
    }
    const isData = (other: Element | null) =>
      other !== null &&
      tagOf(other) === "TD" &&
      (other.textContent?.trim() !== "" || other.children.length > 0);
    const isHeader = (other: Element | null) => other !== null && tagOf(other) === "TH";
    if (isHeader(next) && isHeader(previous)) return "columnheader";
    return isData(next) || isData(previous) ? "rowheader" : "columnheader";
  }

  function inputRole(input: HTMLInputElement): string | null {
    const type = input.type.toLowerCase();
    if (type === "hidden") return null;
    if (type === "checkbox" && input.hasAttribute("switch")) return "switch";
    if (/^(email|search|tel|text|url|)$/.test(type)) {
      const list = dom.elementsByIds(input, input.getAttribute("list"))[0];
      if (list && tagOf(list) === "DATALIST") return "combobox";
      return type === "search" ? "searchbox" : "textbox";
    }
    return tables.inputRoles[type] ?? "textbox";
  }

  /** A picture that says nothing, or that has nothing to show, is decoration. */
  function imageRole(image: Element): string {
    if (hasGlobalAttribute(image, null) || hasTabIndex(image)) return "img";
    if (image.hasAttribute("alt")) return isFilled(image, "alt") ? "img" : "presentation";
    const hasPicture = isFilled(image, "src") || isFilled(image, "srcset");
    return hasPicture || isFilled(image, "title") ? "img" : "presentation";
  }

  function isInList(item: Element): boolean {
    let at = dom.treeParentOf(item);
    for (let steps = 0; at && steps < listStepsMax; steps++, at = dom.treeParentOf(at)) {
      const role = explicitRole(at);
      if (role) {
        if (role === "list" || role === "none" || role === "presentation") return role === "list";
        if (role !== "generic") return false;
      } else if (tables.plainRoles[tagOf(at)] === "list") return true;
      else if (tables.plainRoles[tagOf(at)]) return false;
    }
    return false;
  }

  function drawingRole(element: SVGElement): string | null {
    const tag = tagOf(element);
    if (tag === "SVG" || tag === "IMAGE") return "img";
    if (tag === "A") return isLink(element) ? "link" : null;
    const role = tables.drawingRoles[tag];
    if (!role) return null;
    const hasTitle = [...element.children].some(
      (child) => tagOf(child) === "TITLE" && child.textContent?.trim() !== "",
    );
    return hasTitle || hasAriaName(element) ? role : null;
  }

  function tagRole(element: Element): string | null {
    if (element instanceof SVGElement) return drawingRole(element);
    const tag = tagOf(element);
    switch (tag) {
      case "A":
      case "AREA":
        return isLink(element) ? "link" : null;
      case "ASIDE": {
        const isPart = element.parentElement?.closest(tables.sectioning);
        return isPart && !hasAuthorName(element) ? null : "complementary";
      }
      case "FOOTER":
      case "HEADER": {
        const isPart = closest(element, `main:not([role]), [role=main], ${tables.sectioning}`) !== null;
        if (tag === "HEADER") return isPart ? "sectionheader" : "banner";
        return isPart ? "sectionfooter" : "contentinfo";
      }
      case "FORM":
        return hasAuthorName(element) ? "form" : null;
      case "SECTION":
        return hasAuthorName(element) ? "region" : null;
      case "IMG":
        return imageRole(element);
      case "INPUT":
        return inputRole(element as HTMLInputElement);
      case "LI":
        return isInList(element) ? "listitem" : null;
      case "SELECT": {
        const select = element as HTMLSelectElement;
        return select.multiple || select.size > 1 ? "listbox" : "combobox";
      }
      case "TD": {
        const table = closest(element, "table");
        const role = table ? explicitRole(table) : null;
        return role === "grid" || role === "treegrid" ? "gridcell" : "cell";
      }
      case "TH":
        return headerCellRole(element);
      default:
        return tables.plainRoles[tag] ?? null;
    }
  }

  const keepsRole = (element: Element, role: string | null) =>
    hasGlobalAttribute(element, role) || isFocusable(element);

  function implicitRole(element: Element): string | null {
    const role = tagRole(element);
    if (!role) return null;
    for (let at: Element = element; ; ) {
      const parent = parentOf(at);
      const parents = tables.inheritsNone[tagOf(at)];
      if (!parent || !parents?.split(" ").includes(tagOf(parent))) return role;
      const parentRole = explicitRole(parent);
      if ((parentRole === "none" || parentRole === "presentation") && !keepsRole(parent, parentRole))
        return parentRole;
      at = parent;
    }
  }

  const roleOf = dom.memo(computeRole);

  function computeRole(element: Element): string | null {
    const explicit = explicitRole(element);
    if (explicit && explicit !== "none" && explicit !== "presentation" && explicit !== "generic")
      return explicit;
    const implicit = implicitRole(element);
    if (isMoreThanGeneric(element, implicit)) return "group";
    if (!explicit || (explicit !== "generic" && keepsRole(element, implicit))) return implicit;
    return explicit;
  }

  /** What can be dragged, gets the focus first or pops up is at least a group. */
  function isMoreThanGeneric(element: Element, implicit: string | null): boolean {
    if (implicit !== null) return false;
    const tag = tagOf(element);
    if (!tag.includes("-") && !tables.genericTags.has(tag)) return false;
    const draggable = element.getAttribute("draggable");
    if (draggable !== null && draggable.toLowerCase() !== "false") return true;
    return element.hasAttribute("autofocus") || element.hasAttribute("popover");
  }

  return { roleOf, isFocusable, ...states };
}

export type Roles = ReturnType<typeof createRoles>;
