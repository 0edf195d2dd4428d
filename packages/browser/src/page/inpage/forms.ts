/** What became of forms: whether one was sent, and which field kept one from being sent. */
import type { Brief } from "./brief.ts";

export interface FormOutcome {
  /** A form was sent; the page leaves once the browser gets to it. */
  formSent: boolean;
  /** The first field that was found wrong, as when a form is sent, and what the browser wants there; else empty. */
  invalid: string;
}

export function createForms(brief: Brief) {
  const messageCharsMax = 300;
  let formSent = false;
  let invalid = "";
  addEventListener(
    "invalid",
    ({ target }) => {
      if (invalid || !(target instanceof HTMLElement) || !("validationMessage" in target)) return;
      const message = String(target.validationMessage).slice(0, messageCharsMax).replace(/\s+/g, " ");
      invalid = `${brief(target)}: ${message}`;
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
