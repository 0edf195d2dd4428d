/** Reports when a page was denied a permission: nobody is there to answer the browser's prompt. */
import type { CdpSession } from "../cdp/connection.ts";
import { permissionNames } from "./emulation.ts";
import { worldName } from "./frame.ts";

const bindingName = "browserToolRefused";

/** Runs in each new document before its own script; the binding is there only in the tool's world. */
function watchRefusals(names: string[], tell: (name: string) => void): void {
  // Frames share the answers of their page.
  if (!isSecureContext || self !== top) return;
  for (const name of names)
    navigator.permissions
      .query({ name: name as PermissionName })
      .then((status) => {
        status.addEventListener("change", () => {
          if (status.state === "denied") tell(name);
        });
      })
      // Not every browser knows every name.
      .catch(() => {});
}

export function reportRefusals(session: CdpSession, onRefused: (name: string) => void): void {
  session.on("Runtime.bindingCalled", ({ name, payload }) => {
    if (name === bindingName) onRefused(payload);
  });
  session.tell("Runtime.addBinding", { name: bindingName, executionContextName: worldName });
  session.tell("Page.addScriptToEvaluateOnNewDocument", {
    source: `(${watchRefusals.toString()})(${JSON.stringify(permissionNames)}, (name) => globalThis.${bindingName}?.(name))`,
    worldName,
  });
}
