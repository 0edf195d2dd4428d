/** What became of forms: whether one was sent, and which field kept one from being sent. */
import type { Names } from "./names.ts";
import type { Roles } from "./roles.ts";

export interface FormOutcome {
  /** A form was sent; the page leaves once the browser gets to it. */
  formSent: boolean;
  /** The first field that was found wrong, as when a form is sent, and what the browser wants there; else empty. */
  invalid: string;
}

interface FormTools {
  roles: Roles;
  names: Names;
  refFor: (element: Element) => string;
}

export function createForms({ roles, names, refFor }: FormTools) {
  const messageCharsMax = 300;
  let formSent = false;
  let invalid = "";
  addEventListener(
    "invalid",
    ({ target }) => {
      if (invalid || !(target instanceof HTMLElement) || !("validationMessage" in target)) return;
      const message = String(target.validationMessage).slice(0, messageCharsMax).replace(/\s+/g, " ");
      const role = roles.roleOf(target) ?? "field";
      const name = names.nameOf(target, role).text || target.getAttribute("name") || "";
      // The title is where pages say what they want of a pattern.
      const hint = target.title && !message.includes(target.title) ? ` (${target.title})` : "";
      invalid = `${role} ${JSON.stringify(name)} [ref=${refFor(target)}]: ${message}${hint}`;
    },
    { capture: true },
  );
  addEventListener(
    "formdata",
    () => {
      formSent = true;
    },
    { capture: true },
  );

  /** What happened since the last time. */
  function take(): FormOutcome {
    const outcome = { formSent, invalid };
    formSent = false;
    invalid = "";
    return outcome;
  }

  return { take };
}
