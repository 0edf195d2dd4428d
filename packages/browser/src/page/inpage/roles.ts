/** ARIA roles and states of elements, after the HTML accessibility mappings. */
import type { Dom } from "./dom.ts";

export interface States {
  checked?: boolean | "mixed";
  disabled?: boolean;
  expanded?: boolean;
  invalid?: boolean | "grammar" | "spelling";
  level?: number;
  pressed?: boolean | "mixed";
  selected?: boolean;
}

export function createRoles(dom: Dom) {
  const { tagOf, parentOf, closest } = dom;
  const words = (text: string) => new Set(text.split(" "));

  const knownRoles = words(
    "alert alertdialog application article banner blockquote button caption cell checkbox code columnheader " +
      "combobox complementary contentinfo definition deletion dialog directory document emphasis feed figure form " +
      "generic grid gridcell group heading img insertion link list listbox listitem log main mark marquee math " +
      "meter menu menubar menuitem menuitemcheckbox menuitemradio navigation none note option paragraph " +
      "presentation progressbar radio radiogroup region row rowgroup rowheader scrollbar search searchbox " +
      "separator slider spinbutton status strong subscript superscript switch tab table tablist tabpanel term " +
      "textbox time timer toolbar tooltip tree treegrid treeitem",
  );
  const unnamedRoles = words(
    "caption code deletion emphasis generic insertion paragraph presentation strong subscript superscript",
  );
  const globalAttributes = (
    "aria-atomic aria-busy aria-controls aria-current aria-describedby aria-details aria-dropeffect " +
    "aria-flowto aria-grabbed aria-hidden aria-keyshortcuts aria-live aria-owns aria-relevant"
  ).split(" ");
  const sectioning =
    "article:not([role]), aside:not([role]), main:not([role]), nav:not([role]), section:not([role]), " +
    "[role=article], [role=complementary], [role=main], [role=navigation], [role=region]";

  const plainRoles: Record<string, string> = {
    ARTICLE: "article",
    ASIDE: "complementary",
    BLOCKQUOTE: "blockquote",
    BUTTON: "button",
    CAPTION: "caption",
    CODE: "code",
    DATALIST: "listbox",
    DD: "definition",
    DEL: "deletion",
    DETAILS: "group",
    DFN: "term",
    DIALOG: "dialog",
    DT: "term",
    EM: "emphasis",
    FIELDSET: "group",
    FIGURE: "figure",
    H1: "heading",
    H2: "heading",
    H3: "heading",
    H4: "heading",
    H5: "heading",
    H6: "heading",
    HR: "separator",
    HTML: "document",
    INS: "insertion",
    LI: "listitem",
    MAIN: "main",
    MARK: "mark",
    MATH: "math",
    MENU: "list",
    METER: "meter",
    NAV: "navigation",
    OL: "list",
    OPTGROUP: "group",
    OPTION: "option",
    OUTPUT: "status",
    P: "paragraph",
    PROGRESS: "progressbar",
    SEARCH: "search",
    STRONG: "strong",
    SUB: "subscript",
    SUP: "superscript",
    SVG: "img",
    TABLE: "table",
    TBODY: "rowgroup",
    TEXTAREA: "textbox",
    TFOOT: "rowgroup",
    THEAD: "rowgroup",
    TIME: "time",
    TR: "row",
    UL: "list",
  };
  const inputRoles: Record<string, string> = {
    button: "button",
    checkbox: "checkbox",
    file: "button",
    image: "button",
    number: "spinbutton",
    radio: "radio",
    range: "slider",
    reset: "button",
    submit: "button",
  };
  /** A table or list with role=none takes the meaning from these parts of it too. */
  const inheritsNone: Record<string, string> = {
    DD: "DL DIV",
    DIV: "DL",
    DT: "DL DIV",
    LI: "OL UL",
    TBODY: "TABLE",
    TD: "TR",
    TFOOT: "TABLE",
    TH: "TR",
    THEAD: "TABLE",
    TR: "THEAD TBODY TFOOT TABLE",
  };

  const isLabelled = (element: Element) =>
    element.hasAttribute("aria-label") || element.hasAttribute("aria-labelledby");

  function hasGlobalAttribute(element: Element, role: string | null): boolean {
    if (globalAttributes.some((name) => element.hasAttribute(name))) return true;
    if (isLabelled(element) && !unnamedRoles.has(role ?? "")) return true;
    return role !== "generic" && element.hasAttribute("aria-roledescription");
  }

  const hasTabIndex = (element: Element) => !Number.isNaN(Number(String(element.getAttribute("tabindex"))));

  function isDisabled(element: Element): boolean {
    if (!/^(BUTTON|INPUT|SELECT|TEXTAREA|OPTION|OPTGROUP)$/.test(tagOf(element))) return false;
    if (element.hasAttribute("disabled")) return true;
    if (tagOf(element) === "OPTION" && element.closest("optgroup[disabled]")) return true;
    const fieldset = element.closest("fieldset[disabled]");
    return fieldset !== null && !fieldset.querySelector(":scope > legend")?.contains(element);
  }

  function isFocusable(element: Element): boolean {
    if (isDisabled(element)) return false;
    const tag = tagOf(element);
    if (/^(BUTTON|DETAILS|SELECT|TEXTAREA)$/.test(tag)) return true;
    if (tag === "A" || tag === "AREA") return element.hasAttribute("href") || hasTabIndex(element);
    if (tag === "INPUT") return !(element as HTMLInputElement).hidden || hasTabIndex(element);
    return hasTabIndex(element);
  }

  function explicitRole(element: Element): string | null {
    const attribute = element.getAttribute("role");
    if (!attribute) return null;
    return (
      attribute
        .toLowerCase()
        .split(/\s+/)
        .find((role) => knownRoles.has(role)) ?? null
    );
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
    if (/^(email|search|tel|text|url|)$/.test(type)) {
      const list = dom.elementsByIds(input, input.getAttribute("list"))[0];
      if (list && tagOf(list) === "DATALIST") return "combobox";
      return type === "search" ? "searchbox" : "textbox";
    }
    return inputRoles[type] ?? "textbox";
  }

  function tagRole(element: Element): string | null {
    const tag = tagOf(element);
    switch (tag) {
      case "A":
      case "AREA":
        return element.hasAttribute("href") ? "link" : null;
      case "FOOTER":
        return closest(element, sectioning) ? null : "contentinfo";
      case "HEADER":
        return closest(element, sectioning) ? null : "banner";
      case "FORM":
        return isLabelled(element) ? "form" : null;
      case "SECTION":
        return isLabelled(element) ? "region" : null;
      case "IMG": {
        const isDecoration =
          element.getAttribute("alt") === "" &&
          !element.getAttribute("title") &&
          !hasGlobalAttribute(element, null) &&
          !hasTabIndex(element);
        return isDecoration ? "presentation" : "img";
      }
      case "INPUT":
        return inputRole(element as HTMLInputElement);
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
        return plainRoles[tag] ?? null;
    }
  }

  const keepsRole = (element: Element, role: string | null) =>
    hasGlobalAttribute(element, role) || isFocusable(element);

  function implicitRole(element: Element): string | null {
    const role = tagRole(element);
    if (!role) return null;
    for (let at: Element = element; ; ) {
      const parent = parentOf(at);
      const parents = inheritsNone[tagOf(at)];
      if (!parent || !parents?.split(" ").includes(tagOf(parent))) return role;
      const parentRole = explicitRole(parent);
      if ((parentRole === "none" || parentRole === "presentation") && !keepsRole(parent, parentRole))
        return parentRole;
      at = parent;
    }
  }

  const known = dom.memo<string | null>();

  function roleOf(element: Element): string | null {
    let role = known.get(element);
    if (role === undefined) {
      role = computeRole(element);
      known.set(element, role);
    }
    return role;
  }

  function computeRole(element: Element): string | null {
    const explicit = explicitRole(element);
    if (!explicit) return implicitRole(element);
    if (explicit === "none" || explicit === "presentation") {
      const implicit = implicitRole(element);
      if (keepsRole(element, implicit)) return implicit;
    }
    return explicit;
  }

  const rolesWith = {
    checked: words("checkbox menuitemcheckbox option radio switch menuitemradio treeitem"),
    disabled: words(
      "application button composite gridcell group input link menuitem scrollbar separator tab checkbox " +
        "columnheader combobox grid listbox menu menubar menuitemcheckbox menuitemradio option radio radiogroup " +
        "row rowheader searchbox select slider spinbutton switch tablist textbox toolbar tree treegrid treeitem",
    ),
    expanded: words(
      "application button checkbox combobox gridcell link listbox menuitem row rowheader tab treeitem " +
        "columnheader menuitemcheckbox menuitemradio switch",
    ),
    invalid: words(
      "application checkbox columnheader combobox gridcell listbox radiogroup rowheader searchbox slider " +
        "spinbutton switch textbox tree",
    ),
    level: words("heading listitem row treeitem"),
    selected: words("gridcell option row tab rowheader columnheader treeitem"),
  };

  const attributeOf = (element: Element, name: string) => element.getAttribute(name)?.toLowerCase();

  function threeStates(value: string | undefined): boolean | "mixed" {
    return value === "mixed" ? "mixed" : value === "true";
  }

  function isDisabledForAria(element: Element): boolean {
    if (isDisabled(element)) return true;
    for (let at: Element | null = element; at; at = parentOf(at)) {
      const value = attributeOf(at, "aria-disabled");
      if (value === "true" || value === "false") return value === "true";
    }
    return false;
  }

  function levelOf(element: Element): number | undefined {
    const native = /^H([1-6])$/.exec(tagOf(element));
    if (native) return Number(native[1]);
    const value = Number(element.getAttribute("aria-level") ?? Number.NaN);
    return Number.isInteger(value) && value >= 1 ? value : undefined;
  }

  function checkedOf(element: Element): boolean | "mixed" {
    if (element instanceof HTMLInputElement) {
      if (element.indeterminate) return "mixed";
      if (element.type === "checkbox" || element.type === "radio") return element.checked;
    }
    return threeStates(attributeOf(element, "aria-checked"));
  }

  function invalidOf(element: Element): States["invalid"] {
    const value = attributeOf(element, "aria-invalid")?.trim();
    if (!value || value === "false") return false;
    return value === "grammar" || value === "spelling" ? value : true;
  }

  function statesOf(element: Element, role: string): States {
    const states: States = {};
    if (rolesWith.checked.has(role)) states.checked = checkedOf(element);
    if (rolesWith.disabled.has(role)) states.disabled = isDisabledForAria(element);
    if (rolesWith.expanded.has(role)) {
      states.expanded =
        element instanceof HTMLDetailsElement
          ? element.open
          : attributeOf(element, "aria-expanded") === "true";
    }
    if (rolesWith.invalid.has(role)) states.invalid = invalidOf(element);
    if (rolesWith.level.has(role)) states.level = levelOf(element);
    if (role === "button") states.pressed = threeStates(attributeOf(element, "aria-pressed"));
    if (rolesWith.selected.has(role)) {
      states.selected =
        element instanceof HTMLOptionElement
          ? element.selected
          : attributeOf(element, "aria-selected") === "true";
    }
    return states;
  }

  return { roleOf, statesOf, isDisabled, isDisabledForAria };
}

export type Roles = ReturnType<typeof createRoles>;
