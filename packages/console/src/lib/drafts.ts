const PREFIX = "model-gateway.draft ";

/** What is being written, kept for the tab under the name of where it is written. */
export const draftOf = (name: string): string => sessionStorage.getItem(PREFIX + name) ?? "";

export function keepDraft(name: string, text: string): void {
  if (text === "") sessionStorage.removeItem(PREFIX + name);
  else sessionStorage.setItem(PREFIX + name, text);
}
