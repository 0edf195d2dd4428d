/** ARIA states of elements: checked, disabled, expanded and so on. */
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

export function createStates({ tagOf, parentOf }: Dom) {
  const words = (text: string) => new Set(text.split(" "));

  function isDisabled(element: Element): boolean {
    if (!/^(BUTTON|INPUT|SELECT|TEXTAREA|OPTION|OPTGROUP)$/.test(tagOf(element))) return false;
    if (element.hasAttribute("disabled")) return true;
    if (tagOf(element) === "OPTION" && element.closest("optgroup[disabled]")) return true;
    const fieldset = element.closest("fieldset[disabled]");
    return fieldset !== null && !fieldset.querySelector(":scope > legend")?.contains(element);
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

  return { statesOf, isDisabled, isDisabledForAria };
}

export type StateReader = ReturnType<typeof createStates>;
