import { RpcError } from "@model-gateway/client";
import { createContext } from "react";

/** What a refused call says about one of its fields; null when it is not about that one. */
export function problemOf(error: unknown, field: string): string | null {
  if (!(error instanceof RpcError)) return null;
  const { fields } = error.data ?? {};
  if (!Array.isArray(fields) || !fields.includes(field)) return null;
  const own = error.message.split("; ").find((part) => part.includes(`\`${field}\`: `));
  const reason = own?.slice(own.indexOf(`\`${field}\`: `) + field.length + 4) ?? error.message;
  return reason.charAt(0).toUpperCase() + reason.slice(1);
}

/** The failure of the form around a field. */
export const FailureOfForm = createContext<unknown>(null);
